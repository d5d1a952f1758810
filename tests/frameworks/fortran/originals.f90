module originals_test
  !! Nodes put together by hand, without a tape, under the names of the library athena.
  use iso_fortran_env, only: real32, error_unit
  use pyops, only: array_type, tape_type, graph_type, gno_kernel, gno_aggregate, gno_conv, &
    ono_encode, ono_decode, kernel_conv, sum, operator(*), &
    get_partial_gno_kernel_coords_val, get_partial_gno_kernel_params_val, &
    get_partial_gno_agg_features_val, get_partial_gno_agg_kernels_val, &
    get_partial_gno_conv_params_val, get_partial_kernel_conv_features_val, &
    get_partial_ono_encode_basis_val, get_partial_ono_encode_input_val, &
    get_partial_ono_decode_basis_val, get_partial_ono_decode_input_val, &
    get_partial_gno_kernel_coords, get_partial_gno_agg_features
  implicit none
  private
  public :: run
  integer, public :: failures = 0
  integer, parameter :: d = 3, h = 5, f_in = 2, f_out = 4, edges = 6, nodes = 4, n = 8, k = 3
  integer, parameter :: samples = 5
  integer, parameter :: ia(nodes + 1) = [1, 3, 4, 4, 8]
  integer, parameter :: ja(2, 7) = reshape([2, 1, 3, 2, 1, 3, 2, 4, 4, 5, 1, 6, 3, 2], [2, 7])

contains

  subroutine expect(true, what)
    logical, intent(in) :: true
    character(*), intent(in) :: what
    if (true) return
    failures = failures + 1
    write (error_unit, '(2a)') "failed: ", what
  end subroutine

  logical function same(a, b)
    real(real32), intent(in) :: a(:, :), b(:, :)
    same = maxval(abs(a - b)) <= 1e-4*max(1.0, maxval(abs(b)))
  end function

  function drawn(rows, columns) result(x)
    integer, intent(in) :: rows, columns
    real(real32) :: x(rows, columns)
    call random_number(x)
    x = x - 0.5
  end function

  subroutine run()
    integer :: seed(64) = 17
    call random_seed(put=seed)
    call kernels()
    call aggregation()
    call convolution()
    call transforms(.true.)
    call transforms(.false.)
  end subroutine

  subroutine kernels()
    type(tape_type) :: tape
    type(array_type), target :: this, left, right
    type(array_type), pointer :: x, p, y, upstream, twin, s
    real(real32) :: u(f_in*f_out, edges), gx(d, edges), gp(h*(d + 1) + (h + 1)*f_in*f_out, 1)
    real(real32) :: each(size(gp), edges), wrong(d, edges + 1)
    left%val = drawn(d, edges)
    right%val = drawn(size(gp), 1)
    this%indices = [d, h, f_in, f_out]
    this%left_operand => left
    this%right_operand => right
    u = drawn(f_in*f_out, edges)
    call get_partial_gno_kernel_coords_val(this, u, gx)
    call get_partial_gno_kernel_params_val(this, u, gp)
    call get_partial_gno_kernel_params_val(this, u, each)
    x => tape%variable(left%val)
    p => tape%variable(right%val)
    y => gno_kernel(x, p, hidden=h, in_features=f_in, out_features=f_out)
    call expect(all(y%indices(:4) == this%indices), "indices of a node")
    call y%backward(u)
    call expect(same(gx, x%grad), "gno_kernel by coords")
    call expect(same(gp, p%grad), "gno_kernel by params")
    call expect(same(spread(sum(each, 2), 2, 1), p%grad), "gno_kernel by params, edge by edge")
    call get_partial_gno_kernel_coords_val(y, u, gx)
    call expect(same(gx, x%grad), "gno_kernel by coords of a node of the tape")
    call get_partial_gno_kernel_coords_val(this, u, wrong)
    call expect(all(wrong /= wrong), "an output of another shape")
    call get_partial_gno_kernel_coords_val(this, u(:, :edges - 1), gx)
    call expect(all(gx /= gx), "an upstream gradient of another shape")
    right%val = p%val(:size(gp) - f_in*f_out, :)
    call get_partial_gno_kernel_coords_val(this, u, gx)
    call expect(same(gx, x%grad), "gno_kernel by coords, params without b_v")
    call get_partial_gno_kernel_params_val(this, u, gp)
    call expect(all(gp /= gp), "gno_kernel by params, params without b_v")
    right%val = p%val(:size(gp) - f_in*f_out - 1, :)
    call get_partial_gno_kernel_coords_val(this, u, gx)
    call expect(all(gx /= gx), "params without an element of V")
    upstream => tape%variable(u)
    twin => get_partial_gno_kernel_coords(y, upstream)
    call expect(same(twin%val, x%grad), "twin")
    s => sum(twin*twin)
    call s%backward()
    call expect(allocated(upstream%grad), "twins can be differentiated")
    call tape%clear()
  end subroutine

  subroutine aggregation()
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type), target :: this, left, right
    type(array_type), pointer :: x, p, y, twin
    real(real32) :: u(f_out, nodes), gx(f_in, nodes), gp(f_in*f_out, edges)
    left%val = drawn(f_in, nodes)
    right%val = drawn(f_in*f_out, edges)
    this%indices = ia
    this%adj_ja = ja
    this%left_operand => left
    this%right_operand => right
    u = drawn(f_out, nodes)
    call get_partial_gno_agg_features_val(this, u, gx)
    call get_partial_gno_agg_kernels_val(this, u, gp)
    call graph%from_csr(ia, ja)
    x => tape%variable(left%val)
    p => tape%variable(right%val)
    y => gno_aggregate(graph, x, p)
    call y%backward(u)
    call expect(same(gx, x%grad), "gno_aggregate by features")
    call expect(same(gp, p%grad), "gno_aggregate by kernels")
    twin => get_partial_gno_agg_features(y, tape%constant(u))
    call expect(same(twin%val, x%grad), "gno_aggregate by features, twin")
    this%adj_ja(2, 3) = 0
    call get_partial_gno_agg_features_val(this, u, gx)
    call expect(all(gx /= gx), "a self loop without an edge")
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine convolution()
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type), target :: this, operands(5)
    type(array_type), pointer :: x, e, p, y
    real(real32) :: u(f_out, nodes), gp(h*(d + 1) + (h + 1)*f_in*f_out, 1), gx(f_in, nodes)
    operands(1)%val = drawn(f_in, nodes)
    operands(2)%val = drawn(d, edges)
    operands(3)%val = drawn(size(gp), 1)
    this%indices = [ia, h, 3] ! gelu
    this%adj_ja = ja
    this%left_operand => operands(1)
    this%right_operand => operands(2)
    allocate (this%further(1))
    this%further(1)%node => operands(3)
    u = drawn(f_out, nodes)
    call get_partial_gno_conv_params_val(this, u, gp)
    call graph%from_csr(ia, ja)
    x => tape%variable(operands(1)%val)
    e => tape%constant(operands(2)%val)
    p => tape%variable(operands(3)%val)
    y => gno_conv(graph, x, e, p, hidden=h, activation="gelu")
    call y%backward(u)
    call expect(same(gp, p%grad), "gno_conv by params")

    operands(2)%val = drawn(h, edges)
    operands(3)%val = drawn(h, f_in*f_out)
    operands(5)%val = drawn(1, edges)
    deallocate (this%further)
    allocate (this%further(3))
    this%further(1)%node => operands(3)
    this%further(3)%node => operands(5)
    this%indices = [ia, 1, 2] ! matrix, mean
    call get_partial_kernel_conv_features_val(this, u, gx)
    y => kernel_conv(graph, x, tape%constant(operands(2)%val), tape%constant(operands(3)%val), &
                     edge_weight=tape%constant(operands(5)%val), reduce="mean")
    call x%zero_grad()
    call y%backward(u)
    call expect(same(gx, x%grad), "kernel_conv without a bias")
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine transforms(encode)
    logical, intent(in) :: encode
    type(tape_type) :: tape
    type(array_type), target :: this, left, right
    type(array_type), pointer :: x, b, y
    real(real32) :: one(n*k, 1), each(n*k, samples)
    real(real32), allocatable :: u(:, :), gx(:, :)
    left%val = drawn(merge(n, k, encode), samples)
    right%val = drawn(n*k, 1)
    this%indices = [n, k]
    this%left_operand => left
    this%right_operand => right
    u = drawn(merge(k, n, encode), samples)
    gx = 0*left%val
    x => tape%variable(left%val)
    b => tape%variable(right%val)
    if (encode) then
      call get_partial_ono_encode_input_val(this, u, gx)
      call get_partial_ono_encode_basis_val(this, u, one)
      call get_partial_ono_encode_basis_val(this, u, each)
      y => ono_encode(x, b)
    else
      call get_partial_ono_decode_input_val(this, u, gx)
      call get_partial_ono_decode_basis_val(this, u, one)
      call get_partial_ono_decode_basis_val(this, u, each)
      y => ono_decode(x, b)
    end if
    call y%backward(u)
    call expect(same(gx, x%grad), "transform by input")
    call expect(same(one, b%grad), "transform by basis")
    call expect(same(spread(sum(each, 2), 2, 1), b%grad), "transform by basis, by sample")
    call tape%clear()
  end subroutine
end module

program originals
  use originals_test, only: run, failures
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
