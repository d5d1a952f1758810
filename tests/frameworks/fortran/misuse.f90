module misuse_test
  !! Programs that go wrong: they get a status and a message, and nodes with NaN in the shape that
  !! the values would have. Without a handler each of these errors stops the program, unless its
  !! status is watched. One program: compiling and linking it takes longer than its tests.
  use iso_fortran_env, only: real32, real64, int32, int64
  use listening, only: expect, listen, start_listening, refused, is_void, told, last_status, &
    last_message, watched
  use pyops
  implicit none
  private
  public :: run

contains

  subroutine run()
    integer(int32) :: status
    call start_listening()
    call errors()
    call tapes_apart()
    call bad_graphs()
    watched = .true.
    call bad_graphs(status)
    watched = .false.
    call graphs_filled_again()
    call seeds_and_upstreams()
    call twins_of_others()
    call no_tape_anywhere()
    call other_shapes()
    call clears()
    call copies_after_clear()
    call nothing_inside()
    call whole_numbers()
    call threads_without_tapes()
    call set_error_handler()
  end subroutine

  subroutine errors()
    type(tape_type) :: tape
    type(graph_type) :: graph, empty
    type(array_type), pointer :: x, e, p, y, z
    type(array_type), target :: alone, other
    told = 0
    call graph%from_edges([1, 2, 3], [2, 3, 1])
    x => tape%variable(reshape([5.0, 3.0, 1.0, 6.0, 4.0, 2.0], [2, 3]))
    e => tape%variable(reshape([1.0, 2.0, 3.0], [1, 3]))
    p => tape%variable(spread(0.1, 1, 22))
    y => gno_conv(graph, x, x, p, hidden=2)
    call refused(tape, wrong_shape, "gno_conv: params: expected shape (18, 1), got (22, 1)", &
                 y, [3, 3])
    y => gno_conv(graph, x, p, p, hidden=2)
    call refused(tape, wrong_shape, "gno_conv: coords: expected shape (22, 3), got (22, 1)", &
                 y, [1, 3])
    z => tanh(y) + x
    call z%backward()
    call expect(told == 0 .and. is_void(z, [2, 3]), "operators on what failed do nothing")
    y => aggregate(graph, x, reduce="product")
    call refused(tape, wrong_argument, &
                 "aggregate: reduce: expected sum, mean, max, min, median, mul, powermean, " &
                 //"softmax, std, var, amax or amin, got product", y, [2, 3])
    y => gno_conv(graph, x, e, p, hidden=0)
    call refused(tape, wrong_argument, "gno_conv: hidden: expected at least 1, got 0", y, [5, 3])
    y => gno_conv(empty, x, e, p, hidden=2)
    call refused(tape, wrong_argument, "gno_conv: graph: expected one that has been filled", &
                 y, [3, 3])
    y => edge_to_edge(graph, e, exclude="image")
    call refused(tape, wrong_argument, "edge_to_edge: exclude: expected image only of a graph " &
                 //"that was filled with reverse edges", y, [1, 3])
    call dimenet_basis(e, e, y, z)
    call refused(tape, wrong_shape, &
                 "dimenet_basis: frequencies: expected shape (6, 1), got (1, 3)", y, [6, 3])
    call expect(is_void(z, [42, 3]), "neither of two results")
    call dimenet_basis(e, e, y, z, num_spherical=0, num_radial=3)
    call refused(tape, wrong_argument, &
                 "spherical_basis: num_spherical: expected at least 1, got 0", z, [3, 3])
    call dimenet_basis(e, reshape(e, [3, 1]), y, z, num_radial=3, exponent=33)
    call refused(tape, wrong_argument, "radial_basis: exponent: expected at most 32, got 33", &
                 y, [3, 3])
    call dimenet_basis(y, z, y, z)
    call expect(told == 0 .and. is_void(y, [6, 9]) .and. is_void(z, [42, 9]), "nor of what failed")
    y => matmul(x, x)
    call refused(tape, wrong_shape, "matmul: b: expected shape (3, 3), got (2, 3)", y, [2, 3])
    y => x + p
    call refused(tape, wrong_shape, "add: x1 and x2: expected equal shapes but for lengths of " &
                 //"1, got (2, 3) and (22, 1)", y, [22, 3])
    y => reshape(x, [4, 2])
    call refused(tape, wrong_shape, &
                 "reshape: shape: expected as many elements as x of shape (2, 3), got (4, 2)", &
                 y, [4, 2])
    y => reshape(x, [-2, -3])
    call refused(tape, wrong_shape, &
                 "reshape: shape: expected as many elements as x of shape (2, 3), got (-2, -3)", &
                 y, [1, 1])
    y => gather(x, [1, 4])
    call refused(tape, wrong_index, &
                 "gather: columns: expected numbers from 1 to 3 for x of shape (2, 3), got 4", &
                 y, [2, 2])
    y => sum(x, dim=3)
    call refused(tape, wrong_argument, "sum: dim: expected 1 or 2, got 3", y, [2, 3])
    y => maxval(tape%constant(reshape([real ::], [0, 3])), dim=1)
    call refused(tape, wrong_shape, "maxval: x: expected elements, got shape (0, 3)", &
                 y, [1, 3])
    y => clip(x, 2.0, -0.5)
    call refused(tape, wrong_argument, &
                 "clip: low and high: expected low <= high, got 2 and -5e-1", y, [2, 3])
    y => ono_encode(x, x)
    call refused(tape, wrong_argument, &
                 "ono_encode: expected at most as many modes as points, got 3 modes and 2 points", &
                 y, [3, 3])
    y => edge_mlp(graph, x, p, hidden=4, residual=.true.)
    call refused(tape, wrong_argument, "edge_mlp: residual: expected as many out_features as " &
                 //"edge_width, got 2 out_features and 0 edge_width", y, [2, 3])
    y => x*x
    call y%backward(e%val)
    call expect(all(abs(x%grad) <= 0), "no gradient of a wrong seed")
    call refused(tape, wrong_shape, "multiply: backward: seed: expected shape (2, 3), got (1, 3)")
    call expect(all(abs(y%val - x%val**2) < 1e-5), "values remain after a wrong seed")
    call y%backward()
    call expect(all(abs(x%grad - 2*x%val) < 1e-5), "and can be differentiated")
    alone%val = x%val
    other%val = x%val
    y => alone*other
    call expect(told == 1 .and. last_status == no_tape, "operands without a tape")
    call expect(is_void(y, [2, 3]), "no values of operands without a tape")
    told = 0
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine tapes_apart()
    !! Operands of different tapes, and numbers beside a variable on none.
    type(tape_type) :: one, other
    type(array_type), pointer :: y
    type(array_type), target :: own
    told = 0
    y => one%variable([1.0, 2.0]) + other%variable([3.0, 4.0])
    call expect(told == 1 .and. is_void(y, [2, 1]), "operands of different tapes")
    allocate (own%val(2, 1), source=1.0)
    y => own*2.0
    call expect(last_status == no_tape .and. is_void(y, [2, 1]), "a number beside no tape")
    y => 2.0*own
    call expect(told == 3 .and. is_void(y, [2, 1]), "no tape beside a number")
    call one%clear()
    call other%clear()
  end subroutine

  subroutine bad_graphs(status)
    integer(int32), intent(out), optional :: status
    type(graph_type) :: graph
    told = 0
    call graph%from_csr([1, 2, 3], reshape([1, 1, 2, 0], [2, 2]), status=status)
    call expect(last_status == wrong_index .and. told == 1, "edge 0")
    call expect(.not. associated(graph%rows), "no graph with an edge 0")
    call expect(last_message == "graph: adj_ja: entry 2: expected a node from 1 to 2 and an " &
                //"edge from 1 to 1, got 2 and 0; leave out self loops that have no edge", "edge 0")
    call graph%from_csr([1, 2, 3], reshape([1, 1, 3, 1], [2, 2]), status=status)
    call expect(last_status == wrong_index .and. told == 2, "a neighbour that is not there")
    call graph%from_csr([1, 3, 2], reshape([1, 1, 1, 1], [2, 2]), status=status)
    call expect(last_status == wrong_index .and. told == 3, "offsets that decrease")
    call graph%from_edges([1, 2], [1], status=status)
    call expect(last_status == wrong_shape .and. told == 4, "ends of different numbers")
    call expect(last_message == "graph: src and dst: expected equal lengths, got 2 and 1", &
                "lengths")
    call graph%from_edges([1, 2], [1, 3], num_dst=2, status=status)
    call expect(last_status == wrong_index .and. told == 5, "a destination that is not there")
    if (present(status)) call expect(status == last_status, "a status")
    call graph%from_edges([1_int64, 2_int64], [1_int64, 3_int64], status=status)
    call expect(told == 5, "a good graph")
    if (present(status)) call expect(status == no_error, "no status")
    told = 0
    call graph%from_edges([integer ::], [integer ::], num_dst=-1000, status=status)
    call expect(last_status == wrong_argument .and. told == 1, "a negative number of nodes")
    call expect(last_message == "graph: num_dst: expected at least 0, got -1000", "num_dst")
    call graph%from_edges([1], [1], num_src=-1, status=status)
    call expect(last_status == wrong_argument .and. told == 2, "a negative number of sources")
    call graph%from_csr([1], reshape([integer ::], [2, 0]), num_edges=-4000, status=status)
    call expect(last_status == wrong_argument .and. told == 3, "a negative number of edges")
    call graph%from_csr([1], reshape([integer ::], [2, 0]), num_src=-4000, status=status)
    call expect(last_status == wrong_argument .and. told == 4, "a negative number of sources")
    call graph%from_csr([integer ::], reshape([integer ::], [2, 0]), status=status)
    call expect(last_status == wrong_index .and. told == 5, "no offsets")
    call graph%from_edges([1, 4], [2, 2], num_src=3, status=status)
    call expect(last_status == wrong_index .and. told == 6, "a source that is not there")
    call expect(last_message == "graph: src: edge 2: expected a node from 1 to 3, got 4", "source")
    call graph%from_edges([1, 2], [2, 1], reverse=[2], status=status)
    call expect(last_status == wrong_index .and. told == 7, "too few reverse edges")
    call graph%from_edges([1, 2, 1], [2, 1, 2], reverse=[2, 3, 0], status=status)
    call expect(last_status == wrong_index .and. told == 8, "a reverse of another edge")
    call expect(last_message == "graph: reverse: expected the edge between the same nodes that " &
                //"runs back and has this one as its reverse, or 0, for edge 1", "reverse")
    told = 6
    call graph%from_csr([1, 1], reshape([-5, -5], [2, 1]), status=status)
    call expect(last_status == wrong_index .and. told == 7, "negative indices")
    call expect(graph%is_filled() .and. graph%rows%num_edges == 2, "a graph remains what it was")
    call graph%clear()
    call expect(logical(.not. graph%is_filled()), "no graph")
    call graph%from_edges([integer ::], [integer ::], num_dst=2, status=status)
    call expect(told == 7 .and. graph%rows%num_dst == 2, "a graph without edges")
    call graph%clear()
    told = 0
  end subroutine

  subroutine graphs_filled_again()
    !! Nodes keep the rows that they were made with.
    type(tape_type) :: tape
    type(graph_type) :: graph, same
    type(array_type_r8), pointer :: x, e, p, y, z, g
    real(real64), allocatable :: first(:, :)
    told = 0
    call graph%from_edges([1, 2, 1], [2, 1, 1])
    same = graph
    x => tape%constant(reshape([1.0_real64, 2.0_real64, 3.0_real64, 4.0_real64], [2, 2]))
    e => tape%constant(reshape([1.0_real64, 2.0_real64, 3.0_real64], [1, 3]))
    p => tape%variable(spread(0.1_real64, 1, 2*2 + 3*4))
    y => sum(gno_conv(graph, x, e, p, hidden=2))
    call y%backward()
    first = p%grad
    call p%zero_grad()
    call graph%from_edges([1], [2], num_src=2)
    call expect(logical(.not. same%is_filled() .and. graph%is_filled()), &
                "copies of what was filled again")
    z => gno_conv(same, x, e, p, hidden=2)
    call refused(tape, wrong_argument, "gno_conv: graph: expected one that has been filled", &
                 z, [2, 2])
    call y%backward()
    call expect(maxval(abs(p%grad - first)) < 1e-12, "a graph filled again under a node")
    call graph%clear()
    g => gradient(y, p)
    call expect(maxval(abs(g%val - first)) < 1e-12, "a graph cleared under a node")
    call same%clear()
    call tape%clear()
    call graph%from_edges([1, 2], [2, 1])
    x => tape%constant(reshape([1.0_real64, 2.0_real64, 3.0_real64, 4.0_real64], [2, 2]))
    e => tape%constant(reshape([1.0_real64, 2.0_real64], [1, 2]))
    y => gno_conv(graph, x, e, tape%variable(spread(0.1_real64, 1, 16)), hidden=2)
    call tape%clear()
    call expect(graph%is_filled() .and. told == 0, "a graph outlives its nodes")
    call graph%clear()
  end subroutine

  subroutine seeds_and_upstreams()
    type(tape_type) :: tape, other
    type(graph_type) :: graph
    type(array_type), pointer :: x, e, p, y, g, one, row
    type(array_type), target :: own
    type(operand_r4) :: by(2), to(2), few(1)
    told = 0
    call graph%from_edges([1, 2, 3], [2, 3, 1])
    x => tape%variable(reshape([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]))
    e => tape%variable(reshape([1.0, 2.0, 3.0], [1, 3]))
    p => tape%variable(spread(0.1, 1, 2*2 + 3*2))
    y => gno_conv(graph, x, e, p, hidden=2)
    one => tape%constant(reshape([1.0], [1, 1]))
    row => tape%constant([1.0, 1.0, 1.0])
    g => gradient(y, p, one)
    call refused(tape, wrong_shape, "gradient: seed: expected shape (1, 3), got (1, 1)", &
                 g, [10, 1])
    g => gradient(y, p, row)
    call refused(tape, wrong_shape, "gradient: seed: expected shape (1, 3), got (3, 1)", &
                 g, [10, 1])
    g => gradient(y, p, other%constant(y%val))
    call refused(tape, wrong_argument, "gradient: seed: it stands on another tape", g, [10, 1])
    g => get_partial_gno_conv_params(y, one)
    call refused(tape, wrong_shape, "get_partial_gno_conv_params: upstream_grad: expected shape " &
                 //"(1, 3), got (1, 1)", g, [10, 1])
    g => get_partial_gno_conv_params(y, other%constant(y%val))
    call refused(tape, wrong_argument, &
                 "get_partial_gno_conv_params: upstream_grad: it stands on another tape", &
                 g, [10, 1])
    g => get_partial_gno_conv_params(y, own)
    call refused(tape, wrong_shape, "get_partial_gno_conv_params: upstream_grad: expected shape " &
                 //"(1, 3), got no values", g, [10, 1])
    own%val = y%val
    g => get_partial_gno_conv_params(y, own)
    call expect(told == 0 .and. all(shape(g%val) == [10, 1]), "an upstream gradient on no tape")
    call y%backward(row%val)
    call refused(tape, wrong_shape, "gno_conv: backward: seed: expected shape (1, 3), got (3, 1)")
    x%tangent = row%val
    call y%jvp()
    call refused(tape, wrong_shape, "gno_conv: jvp: tangent: expected shape (2, 3), got (3, 1)")
    call expect(all(shape(y%val) == [1, 3]) .and. all(y%val == y%val), "values remain")
    call expect(all(shape(y%tangent) == [1, 3]) .and. all(y%tangent /= y%tangent), "no tangent")
    deallocate (x%tangent)
    call x%backward(one%val)
    call refused(tape, wrong_shape, "constant: backward: seed: expected shape (2, 3), got (1, 1)")
    call expect(all(shape(x%val) == [2, 3]), "values of a leaf remain")
    by(1)%node => x
    call gradients(y, by(:1), to)
    call refused(tape, wrong_argument, "gradients: g: expected as many as x, 1, got 2")
    call expect(is_void(to(1)%node, [2, 3]) .and. is_void(to(2)%node, [1, 1]), "no gradients")
    call gradients(y, by, to)
    call refused(tape, wrong_argument, "gradients: x: expected nodes, got none as number 2", &
                 to(1)%node, [2, 3])
    by(2)%node => x
    call gradients(y, by, to)
    call expect(associated(to(1)%node, to(2)%node) .and. told == 0, "an array twice")
    x%val(1, 1) = transfer(int(z"7f800000"), 1.0) ! infinity
    g => gradient(sum(e), x)
    call expect(all(abs(g%val) <= 0), "no dependence on infinite numbers")
    call gradients(y, by(:1), few, own)
    call expect(told == 0 .and. all(shape(few(1)%node%val) == [2, 3]), "a seed on no tape")
    call tape%clear()
    call other%clear()
    call graph%clear()
  end subroutine

  subroutine twins_of_others()
    !! Gradients by the input of an operator are of nodes of this operator.
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type), pointer :: x, e, y, z, g
    type(array_type), target :: hand
    real(real32) :: output(2, 3)
    told = 0
    call graph%from_edges([1, 2, 3], [2, 3, 1])
    x => tape%variable(reshape([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]))
    e => tape%variable(reshape([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]))
    y => matmul(x, transpose(x))
    g => get_partial_gno_conv_params(y, y)
    call refused(tape, wrong_argument, "get_partial_gno_conv_params: this: expected a node of " &
                 //"gno_conv, got one of matmul", g, [1, 1])
    z => gno_aggregate(graph, x, e)
    g => get_partial_gno_agg_kernels(z, z)
    call expect(told == 0, "one of its own")
    g => get_partial_gno_agg_kernels(g, g)
    call refused(tape, wrong_argument, "get_partial_gno_aggregate_kappa: this: expected a node " &
                 //"of gno_aggregate, got one of the gradients of gno_aggregate", g, [2, 3])
    call get_partial_gno_conv_features_val(z, z%val, output)
    call expect(all(output /= output), "numbers of another operator")
    y => kernel_conv(graph, x, e, tape%constant(spread([1.0, 2.0], 2, 4)))
    call expect(told == 0, "a convolution without weights")
    g => get_partial_kernel_conv_edge_weight(y, y)
    call refused(tape, wrong_argument, &
                 "get_partial_kernel_conv_edge_weight: this: expected a node with edge_weight", &
                 g, [1, 1])
    hand%val = x%val
    hand%left_operand => x
    hand%right_operand => e
    g => get_partial_gno_agg_features(hand, x)
    call expect(told == 1 .and. last_status == no_tape, "a twin of a node put together by hand")
    call expect(last_message == "get_partial_gno_aggregate_features: this: it stands on no tape", &
                "its message")
    call expect(is_void(g, [2, 3]), "which is none")
    told = 0
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine no_tape_anywhere()
    type(tape_type) :: tape
    type(array_type), pointer :: x, y, g
    type(array_type), target :: own, bare
    told = 0
    own%val = reshape([1.0, 2.0, 3.0, 4.0], [2, 2])
    own%requires_grad = .true.
    y => matmul(own, own)
    call expect(told == 1 .and. last_status == no_tape .and. is_void(y, [2, 2]), "no tape")
    call expect(all(abs(own%grad) <= 0), "a gradient that cannot be")
    g => gradient(y, own)
    y => sum(2.0*tanh(y) + y)
    call y%backward()
    call y%jvp()
    call expect(told == 1 .and. is_void(g, [2, 2]) .and. is_void(y, [1, 1]), &
                "operators on what failed")
    call expect(all(y%tangent /= y%tangent), "no tangent of what failed")
    g => gradient(own, own)
    call expect(told == 2 .and. last_status == no_tape .and. is_void(g, [2, 2]), "a gradient")
    call expect(last_message == "gradient: y: it stands on no tape", "its message")
    call own%backward()
    call expect(told == 3 .and. last_status == no_tape, "backward from a variable")
    call expect(last_message == "array: backward: it stands on no tape", "its message")
    call own%jvp()
    call expect(told == 4 .and. last_status == no_tape, "forward to a variable")
    y => own%detach()
    call expect(told == 5 .and. last_status == no_tape .and. is_void(y, [2, 2]), "detached")
    call expect(all(shape(own%val) == [2, 2]), "the values of the variable remain")
    told = 0
    x => tape%variable(own%val)
    y => x*bare
    call refused(tape, wrong_argument, "multiply: operand 2: expected a node with val", y, [2, 2])
    y => reshape(bare, [2, 2])
    call expect(told == 1 .and. last_status == no_tape .and. is_void(y, [2, 2]), &
                "reshaped without values")
    told = 0
    y => transpose(x*own)
    call y%backward()
    call expect(told == 0 .and. all(abs(own%grad - x%val) < 1e-6), "beside a variable on a tape")
    call tape%clear()
  end subroutine

  subroutine other_shapes()
    !! Values that get another shape between a node and its derivatives.
    type(tape_type) :: tape
    type(array_type), target :: own
    type(array_type), pointer :: x, y, z, g
    told = 0
    own%val = reshape([1.0, 2.0, 3.0, 4.0], [2, 2])
    own%requires_grad = .true.
    x => tape%variable(own%val)
    y => sum(x*own)
    call y%backward()
    own%val = reshape(spread(1.0, 1, 200), [2, 100])
    z => sum(own*own)
    call expect(last_status == no_tape, "on no tape")
    told = 0
    z => sum(own*tape%constant(3*own%val))
    call z%backward()
    call expect(told == 0 .and. all(shape(own%grad) == [2, 100]), "a gradient begun anew")
    call expect(all(abs(own%grad - 3) < 1e-6), "a gradient begun anew")
    call y%backward()
    call refused(tape, wrong_shape, &
                 "multiply: operand 2, changed since: expected shape (2, 2), got (2, 100)")
    g => gradient(y, x)
    call refused(tape, wrong_shape, &
                 "multiply: operand 2, changed since: expected shape (2, 2), got (2, 100)", &
                 g, [2, 2])
    x%tangent = x%val
    call y%jvp()
    call refused(tape, wrong_shape, &
                 "multiply: operand 2, changed since: expected shape (2, 2), got (2, 100)")
    call expect(all(shape(y%tangent) == 1) .and. all(y%tangent /= y%tangent), "no tangent")
    deallocate (x%tangent)
    x%val = reshape([1.0], [1, 1])
    y => sum(x*3)
    call x%zero_grad()
    call y%backward()
    call expect(told == 0 .and. all(shape(x%grad) == [1, 1]), "a leaf in another shape")
    deallocate (x%val)
    call y%backward()
    call refused(tape, wrong_shape, &
                 "multiply: operand 1, changed since: expected shape (1, 1), got no values")
    y => exp(x)
    call refused(tape, wrong_argument, "exp: operand 1: expected a node with val", y, [1, 1])
    call x%backward()
    call refused(tape, wrong_argument, "constant: backward: expected a node with val")
    g => gradient(x, x)
    call refused(tape, wrong_argument, "gradient: y: expected a node with val", g, [1, 1])
    x%val = reshape([1.0], [1, 1])
    y => exp(x)
    deallocate (y%val)
    call y%backward()
    call refused(tape, wrong_shape, "exp: val, changed since: expected shape (1, 1), got no values")
    call tape%clear()
  end subroutine

  subroutine clears()
    type(tape_type) :: tape, other
    type(array_type), pointer :: x, y
    type(array_type_r8), pointer :: q, r
    type(array_type), target :: own
    told = 0
    own%val = reshape([1.0], [1, 1])
    q => tape%constant([1.0_real64])
    x => tape%variable([1.0, 2.0])
    r => q + q
    y => x*x
    call tape%clear(after=own)
    call refused(tape, wrong_argument, "clear: after: expected a node of this tape")
    call tape%clear(after=other%constant([1.0]))
    call refused(tape, wrong_argument, "clear: after: expected a node of this tape")
    call expect(tape%store%count_r4 == 2 .and. tape%store%count_r8 == 2, "nothing is freed")
    call tape%clear(after=x)
    call expect(tape%store%count_r4 == 1 .and. tape%store%count_r8 == 1, "both kinds are freed")
    call tape%clear(after=q)
    call expect(tape%store%count_r4 == 0 .and. tape%store%count_r8 == 1, "also before the others")
    call other%clear()
    call other%clear(after=q)
    call expect(told == 1 .and. last_status == wrong_argument, "a tape without nodes")
    told = 0
    call tape%clear()
  end subroutine

  subroutine copies_after_clear()
    !! Handles and copies of what is gone.
    type(tape_type) :: tape, same
    type(array_type), pointer :: x, y
    type(array_type), target :: copy
    integer :: i
    told = 0
    x => tape%variable([1.0, 2.0])
    same = tape
    y => exp(x)
    copy = y
    call tape%clear()
    call expect(.not. same%is_begun() .and. same%status() == 0, "a handle of what is gone")
    call expect(same%message() == " ", "its message")
    call same%zero_grad()
    call same%reset_status()
    call same%clear(after=copy)
    call expect(told == 1 .and. last_status == wrong_argument, "a copy of what is gone")
    y => copy*copy
    call expect(told == 2 .and. last_status == no_tape, "stands on no tape")
    told = 0
    x => tape%variable([3.0, 4.0])
    y => x*copy
    call y%backward()
    call expect(told == 0 .and. all(abs(x%grad - copy%val) < 1e-6), "and is a variable")
    y => same%variable([5.0])
    call expect(same%is_begun() .and. .not. associated(same%store, tape%store), "a new tape")
    call same%clear()
    call expect(tape%is_begun() .and. tape%store%count_r4 == 2, "the other one remains")
    do i = 1, 1000
      call tape%clear()
      x => tape%variable([1.0])
    end do
    call tape%clear()
  end subroutine

  subroutine nothing_inside()
    type(tape_type) :: tape
    type(array_type), pointer :: x, y
    told = 0
    x => tape%variable(reshape([real ::], [0, 3]))
    y => mean(x)
    call expect(all(shape(y%val) == 1) .and. all(y%val /= y%val), "the mean of nothing")
    call y%backward()
    call expect(size(x%grad) == 0, "its gradient")
    y => mean(x, dim=1)
    call expect(all(shape(y%val) == [1, 3]) .and. all(y%val /= y%val), "the means of nothing")
    y => mean(x, dim=2)
    call expect(all(shape(y%val) == [0, 1]), "no means of nothing")
    y => sum(x)
    call expect(all(abs(y%val) <= 0), "the sum of nothing")
    y => maxval(x, dim=2)
    call expect(told == 0 .and. all(shape(y%val) == [0, 1]), "no maxima of nothing")
    call tape%clear()
  end subroutine

  subroutine whole_numbers()
    !! Beside arrays in operators.
    type(tape_type) :: tape
    type(array_type), pointer :: x, y
    type(array_type_r8), pointer :: z
    x => tape%variable([1.0, -3.0])
    y => 2*x**2 - 1/x + (x - 4)/2
    call expect(all(abs(y%val - (2*x%val**2 - 1/x%val + (x%val - 4)/2)) < 1e-5), "integers")
    call y%backward()
    call expect(all(abs(x%grad - (4*x%val + 1/x%val**2 + 0.5)) < 1e-5), "their gradient")
    z => 1 + tape%constant([0.5_real64])
    call expect(abs(z%val(1, 1) - 1.5_real64) < 1e-15, "integers beside real64")
    z => maximum(z, 2)
    call expect(abs(z%val(1, 1) - 2) < 1e-15, "integers in functions")
    call tape%clear()
  end subroutine

  subroutine threads_without_tapes()
    !! An array without a tape is one node for all threads, and no call changes it.
    type(array_type), pointer :: y
    type(array_type), target :: own
    integer :: i, wrong
    own%val = reshape([1.0], [1, 1])
    call set_error_handler(ignore)
    wrong = 0
    !$omp parallel do private(y) reduction(+: wrong)
    do i = 1, 500
      y => exp(own + own)
      if (.not. is_void(y, [1, 1])) wrong = wrong + 1
    end do
    !$omp end parallel do
    call expect(wrong == 0, "no tape in any thread")
    call set_error_handler(listen)
  end subroutine

  subroutine ignore(status, message)
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    if (status == no_error .and. len(message) == 0) error stop "never"
  end subroutine
end module

program misuse
  use listening, only: failures
  use misuse_test, only: run
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
