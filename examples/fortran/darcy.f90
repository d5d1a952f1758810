program darcy
  !! A graph neural operator learns Darcy flow: examples/darcy.py, in Fortran alone.
  !!
  !!     h_i <- h_i + silu(sum_j area_j h_j kappa(x_j - x_i) + W h_i + b)
  !!
  !! darcy FILE LOSSES reads meshes, flows, initial parameters and the order of the batches from a
  !! file that examples/fortran/twin.py writes, and leaves the loss of every step in another.
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use pyops, only: adam_type, array_type, graph_type, operand_r4, tape_type, get_num_threads, &
    gno_conv, matmul, mean, silu, sqrt, operator(+), operator(-), operator(*), operator(**)
  implicit none
  integer, parameter :: stages = 6
  real(real64), parameter :: base_rate = 4e-3_real64
  integer :: nodes, edges, batch, layers, width, hidden, samples, held_out, steps
  integer, allocatable :: src(:), dst(:), batches(:, :)
  real(real64), allocatable :: offsets(:, :), points(:, :), even(:), part(:), area(:)
  real(real64), allocatable :: log_a(:, :), u(:, :), test_log_a(:, :), test_u(:, :), start(:)
  type(tape_type) :: tape
  type(graph_type) :: graph
  type(adam_type) :: optimiser
  type(operand_r4), allocatable :: parameters(:)
  type(array_type), pointer :: coords, weight, border, last_leaf
  type(array_type), pointer :: loss

  call read_file(argument(1))
  call prepare()
  call train(argument(2))
  print "(a, f6.3)", "relative L2 error of held-out flows: ", test_error()
  call tape%clear()
  call graph%clear()

contains

  function argument(number) result(text)
    integer, intent(in) :: number
    character(:), allocatable :: text
    integer :: length
    call get_command_argument(number, length=length)
    allocate (character(length) :: text)
    call get_command_argument(number, text)
    if (length == 0) error stop "usage: darcy FILE LOSSES"
  end function

  subroutine read_file(name)
    character(*), intent(in) :: name
    integer :: unit
    integer(int32) :: header(10)
    integer(int32), allocatable :: ends(:, :), order(:, :)
    open (newunit=unit, file=name, access="stream", form="unformatted", action="read")
    read (unit) header
    nodes = header(1)
    edges = header(2)
    batch = header(3)
    layers = header(4)
    width = header(5)
    hidden = header(6)
    samples = header(7)
    held_out = header(8)
    steps = header(9)
    allocate (ends(edges, 2), order(batch, steps), offsets(2, edges), points(2, nodes))
    allocate (even(nodes), part(nodes), area(nodes), start(header(10)))
    allocate (log_a(nodes, samples), u(nodes, samples))
    allocate (test_log_a(nodes, held_out), test_u(nodes, held_out))
    read (unit) ends, order
    src = ends(:, 1)
    dst = ends(:, 2)
    batches = order
    read (unit) offsets, points, even, part, area, log_a, u, test_log_a, test_u, start
    close (unit)
  end subroutine

  subroutine prepare()
    !! The samples of a batch side by side in one graph, and all parameters.
    integer :: copy, i
    allocate (parameters(0))
    call graph%from_edges([(src + copy*nodes, copy = 0, batch - 1)], &
                          [(dst + copy*nodes, copy = 0, batch - 1)], num_src=batch*nodes)
    coords => tape%constant(reshape([(real(offsets, real32), i = 1, batch)], [2, batch*edges]))
    weight => tape%constant(row([(real(part, real32), i = 1, batch)]))
    border => tape%constant(row([(5*real(even, real32), i = 1, batch)]))
    call add(4*width, width)
    call add(width, width)
    do i = 1, layers
      call add(hidden*3 + (hidden + 1)*width**2, 1)
      call add(width**2, width)
      call add(width, width)
    end do
    call add(width**2, width)
    call add(width, width)
    call add(width, 1)
    call add(1, 1)
  end subroutine

  subroutine add(length, rows)
    !! The next of the parameters.
    integer, intent(in) :: length, rows
    last_leaf => tape%variable(reshape(real(start(:length), real32), [rows, length/rows]))
    parameters = [parameters, operand_r4(last_leaf)]
    start = start(length + 1:)
  end subroutine

  pure function row(values)
    real(real32), intent(in) :: values(:)
    real(real32) :: row(1, size(values))
    row(1, :) = values
  end function

  function network(fields) result(y)
    !! u at the nodes of all samples, of log a there.
    real(real64), intent(in) :: fields(:, :)
    real(real32) :: inputs(4, nodes*batch)
    type(array_type), pointer :: y, h, neighbours
    integer :: i, s, p
    do s = 1, batch
      i = (s - 1)*nodes
      inputs(1, i + 1:i + nodes) = real(fields(:, s), real32)
      inputs(2:3, i + 1:i + nodes) = real(2*points - 1, real32)
      inputs(4, i + 1:i + nodes) = 50*real(even, real32)
    end do
    associate (p_ => parameters)
      h => matmul(p_(1)%node, tape%constant(inputs)) + p_(2)%node
      p = 2
      do i = 1, layers
        neighbours => gno_conv(graph, h*weight, coords, p_(p + 1)%node, hidden)
        h => h + silu(neighbours + (matmul(p_(p + 2)%node, h) + p_(p + 3)%node))
        p = p + 3
      end do
      h => silu(matmul(p_(p + 1)%node, h) + p_(p + 2)%node)
      y => border*(matmul(p_(p + 3)%node, h) + p_(p + 4)%node)
    end associate
  end function

  function error_of(prediction, truth) result(y)
    !! The mean of the relative L2 errors of the samples.
    type(array_type), intent(in), target :: prediction
    real(real64), intent(in) :: truth(:, :)
    type(array_type), pointer :: y
    real(real32) :: share(nodes*batch, batch)
    integer :: s
    share = 0
    do s = 1, batch
      share((s - 1)*nodes + 1:s*nodes, s) = real(area/dot_product(area, truth(:, s)**2), real32)
    end do
    y => prediction - tape%constant(row(real(reshape(truth, [size(truth)]), real32)))
    y => mean(sqrt(matmul(y**2.0, tape%constant(share))))
  end function

  subroutine train(name)
    !! Adam, at a rate that falls in stages.
    character(*), intent(in) :: name
    real(real64) :: start_time
    integer :: unit, stage, step
    open (newunit=unit, file=name, action="write")
    start_time = seconds()
    do step = 1, steps/stages*stages
      stage = (step - 1)/(steps/stages)
      if (mod(step - 1, steps/stages) == 0) then ! forgets the moments
        call optimiser%clear()
        call optimiser%add(parameters)
        optimiser%rate = base_rate*(1 + cos(acos(-1.0_real64)*stage/stages))/2
      end if
      associate (chosen => batches(:, step))
        loss => error_of(network(log_a(:, chosen)), u(:, chosen))
      end associate
      call loss%backward()
      write (unit, "(es16.9)") loss%val(1, 1)
      if (mod(step, 40) == 0) print "(a, i5, a, f7.4)", "step", step, "  loss", loss%val(1, 1)
      call optimiser%step()
      call optimiser%zero_grad()
      call tape%clear(after=last_leaf)
    end do
    close (unit)
    print "(i0, a, f0.1, a, i0, a)", step - 1, " steps, ", &
      1000*(seconds() - start_time)/(step - 1), " ms each on ", get_num_threads(), " threads"
  end subroutine

  real(real64) function test_error()
    integer :: i
    test_error = 0
    do i = 1, held_out, batch
      loss => error_of(network(test_log_a(:, i:i + batch - 1)), test_u(:, i:i + batch - 1))
      test_error = test_error + loss%val(1, 1)*batch/held_out
      call tape%clear(after=last_leaf)
    end do
  end function

  real(real64) function seconds()
    integer(int64) :: count, rate
    call system_clock(count, rate)
    seconds = real(count, real64)/rate
  end function
end program
