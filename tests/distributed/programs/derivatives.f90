program derivatives
  !! A function composed of all nodes that lead between ranks, against central differences: first
  !! derivatives, products with the Hessian, forward mode. Ranks 1 and 3 own no node, and edges are
  !! repeated and loop.
  use, intrinsic :: iso_fortran_env, only: error_unit, int64, real64
  use pyops
  use pyops_ranks
  implicit none
  integer, parameter :: width = 3, nodes = 11, edges = 40
  real(real64), parameter :: step = 1e-5_real64
  type(communicator_type) :: comm
  type(distributed_graph_type) :: graph, copy
  type(tape_type) :: tape
  type(array_type_r8), pointer :: x, p, value, product
  type(operand_r8) :: leaves(2), slopes(2)
  real(real64), allocatable :: x0(:, :), p0(:, :), along_x(:, :), along_p(:, :)
  real(real64) :: slope, curvature, difference, second
  logical :: failed = .false.

  call comm%start()
  call fill()
  copy = graph
  x0 = drawn(width, int(graph%num_src), 10 + comm%rank)
  along_x = drawn(width, int(graph%num_src), 20 + comm%rank)
  p0 = drawn(width, 1, 30)
  along_p = drawn(width, 1, 31)

  call evaluate(0.0_real64)
  call graph%clear() ! nodes stay as they are
  call fill()
  call expect(.not. copy%is_filled(), "copies of a graph that is refilled are empty")
  slope = total(along_x*slopes(1)%node%val) + sum(along_p*slopes(2)%node%val)
  allocate (x%tangent, source=along_x)
  allocate (p%tangent, source=along_p)
  call value%jvp()
  call near(value%tangent(1, 1), slope, 1e-12_real64, "forward mode")
  call product%jvp()
  second = product%tangent(1, 1)
  call tape%zero_grad()
  call product%backward()
  curvature = total(along_x*x%grad) + sum(along_p*p%grad)
  call near(second, curvature, 1e-12_real64, "forward over reverse")
  call tape%zero_grad()
  call value%backward()
  call near(total(along_x*x%grad) + sum(along_p*p%grad), slope, 1e-13_real64, "backward")
  call tape%clear()

  call differ()
  call near(slope, difference, 1e-7_real64, "the gradient")
  call near(curvature, second, 1e-7_real64, "a product with the Hessian")
  call graph%clear()
  call comm%finish()
  if (failed) error stop

contains

  subroutine fill()
    !! Even ranks share the nodes; a rank has no edges, and another no ghosts.
    integer(int64), allocatable :: src(:), dst(:)
    integer(int64) :: first, last
    integer :: owners, turn, i
    owners = (comm%size + 1)/2
    turn = (comm%rank + 1)/2
    first = 1 + (nodes*turn)/owners
    last = (nodes*(turn + 1 - mod(comm%rank, 2)))/owners
    if (mod(comm%rank, 2) == 1) last = first - 1
    allocate (src(0), dst(0))
    do i = 1, edges
      if (last < first .or. turn == 2) exit
      src = [src, 1_int64 + mod(7*i*i + 3*turn, nodes)]
      dst = [dst, first + mod(int(5*i, int64), last - first + 1)]
    end do
    call graph%from_edges(comm, src, dst, owned=[first, last])
  end subroutine

  subroutine evaluate(distance)
    !! The value at a distance along the direction, its gradients, and their product with it.
    real(real64), intent(in) :: distance
    type(array_type_r8), pointer :: full, mean_x, y, part
    x => tape%variable(x0 + distance*along_x)
    p => tape%variable(p0 + distance*along_p)
    mean_x => sum_over_ranks(comm, sum(x))*(1/real(nodes*width, real64))
    full => exchange(graph, tanh(x)*replicated(comm, p))
    y => gather(full, graph%src) - gather(x, graph%dst)*replicated(comm, mean_x)
    part => accumulate(graph, full*full) + x*exp(replicated(comm, mean_x))
    value => sum_over_ranks(comm, sum(sin(y)) + sum(part*part*x)) + sum(p*p*p)*mean_x
    leaves(1)%node => x
    leaves(2)%node => p
    call gradients(value, leaves, slopes)
    product => sum_over_ranks(comm, sum(tape%constant(along_x)*slopes(1)%node)) &
      + sum(tape%constant(along_p)*slopes(2)%node)
  end subroutine

  subroutine differ()
    !! Central differences of the value and of the slope.
    real(real64) :: values(2), products(2)
    integer :: i
    do i = 1, 2
      call evaluate((2*i - 3)*step)
      values(i) = value%val(1, 1)
      products(i) = product%val(1, 1)
      call tape%clear()
    end do
    difference = (values(2) - values(1))/(2*step)
    second = (products(2) - products(1))/(2*step)
  end subroutine

  function drawn(rows, columns, seed) result(values)
    integer, intent(in) :: rows, columns, seed
    real(real64) :: values(rows, columns)
    integer :: i, j
    do j = 1, columns
      do i = 1, rows
        values(i, j) = sin(37.7_real64*seed + 11.1_real64*i + 3.3_real64*j*j)
      end do
    end do
  end function

  real(real64) function total(values)
    !! The sum over ranks of values that are not differentiated.
    real(real64), intent(in) :: values(:, :)
    type(array_type_r8), pointer :: all
    type(tape_type) :: other
    all => sum_over_ranks(comm, other%constant([sum(values)]))
    total = all%val(1, 1)
    call other%clear()
  end function

  subroutine near(found, expected, tolerance, what)
    real(real64), intent(in) :: found, expected, tolerance
    character(*), intent(in) :: what
    if (abs(found - expected) <= tolerance*max(1.0_real64, abs(expected))) return
    failed = .true.
    write (error_unit, "(2a, 2es24.16)") what, " differs: ", found, expected
  end subroutine

  subroutine expect(true, what)
    logical, intent(in) :: true
    character(*), intent(in) :: what
    if (true) return
    failed = .true.
    write (error_unit, "(2a)") "failed: ", what
  end subroutine
end program
