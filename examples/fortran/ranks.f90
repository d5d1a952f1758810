include "pyops_ranks.f90"

program ranks
  !! A graph neural operator learns the heat kernel on a mesh that no rank has as a whole.
  !!
  !!     mpifort ranks.f90 $(python -m pyops --flags) -o ranks && mpiexec -n 3 ./ranks
  !!
  !! The mesh is a grid on a torus, with displaced nodes. A field is propagated by two layers of the
  !! same kernel, h_i <- mean_j h_j kappa(x_j - x_i), each over half of the time. Losses are the
  !! same on any number of ranks, but for rounding. An argument is the number of steps.
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use pyops, only: array_type_r8, tape_type, gno_conv, mean, sum, &
    operator(+), operator(-), operator(*), operator(**)
  use pyops_ranks, only: communicator_type, distributed_graph_type, exchange, gno_conv, &
    sum_over_ranks
  implicit none
  integer(int64), parameter :: side = 24, nodes = side**2
  integer, parameter :: reach = 2, neighbours = (2*reach + 1)**2, hidden = 12, fields = 4
  integer, parameter :: length = hidden*3 + hidden + 1
  real(real64), parameter :: pi = acos(-1.0_real64), time = 1e-3_real64, rate = 0.02_real64
  type(communicator_type) :: comm
  type(distributed_graph_type) :: graph
  type(tape_type) :: tape
  type(array_type_r8), pointer :: points, everywhere, offsets, params, loss
  real(real64), allocatable :: ends(:, :)
  real(real64) :: start(length), first(length), second(length)
  integer(int64) :: owned(2)
  integer :: steps, step, i

  call comm%start()
  owned = [nodes*comm%rank/comm%size + 1, nodes*(comm%rank + 1)/comm%size]
  call make_mesh()
  steps = number_of_steps()
  start = [(0.5_real64*sin(7.3_real64*i*i), i=1, length)]
  params => tape%variable(start) ! the same on all ranks
  first = 0
  second = 0
  do step = 1, steps
    loss => relative_error()
    call loss%backward()
    if (step == 1 .or. mod(step, 25) == 0) call show()
    call improve()
    call tape%clear(after=params)
  end do
  call graph%clear()
  call comm%finish()

contains

  integer function number_of_steps() result(number)
    character(10) :: text
    integer :: status
    call get_command_argument(1, text)
    read (text, *, iostat=status) number
    if (status /= 0) number = 150
  end function

  subroutine make_mesh()
    !! The own nodes, the edges into them, and the offsets along these.
    integer(int64), allocatable :: src(:), dst(:)
    integer(int64) :: number, row, column
    integer :: i, j
    allocate (src(0), dst(0))
    do number = owned(1), owned(2)
      row = (number - 1)/side
      column = mod(number - 1, side)
      src = [src, ((1 + side*modulo(row + i, side) + modulo(column + j, side), &
                    i=-reach, reach), j=-reach, reach)]
      dst = [dst, spread(number, 1, neighbours)]
    end do
    call graph%from_edges(comm, src, dst, owned)
    points => tape%constant(places())
    everywhere => exchange(graph, points) ! with the nodes of other ranks where edges begin
    ends = everywhere%val(:, graph%src) - points%val(:, graph%dst)
    offsets => tape%constant(side/real(reach, real64)*(ends - anint(ends)))
  end subroutine

  function places() result(x)
    !! The own nodes: those of a grid, each displaced by up to a tenth of its spacing.
    real(real64) :: x(2, owned(2) - owned(1) + 1)
    integer(int64) :: i, number
    do i = 1, size(x, 2)
      number = owned(1) + i - 1
      x(:, i) = [mod(number - 1, side), (number - 1)/side] &
        + sin([12.9_real64*number, 78.2_real64*number])/10
    end do
    x = x/side
  end function

  function relative_error() result(error)
    !! The mean squared error of some waves, relative to their squares.
    type(array_type_r8), pointer :: error, h, energy, miss
    integer :: field, layer
    miss => tape%constant([0.0_real64])
    do field = 1, fields
      h => tape%constant(wave(field, 0.0_real64))
      do layer = 1, 2
        h => gno_conv(graph, h*(1/real(neighbours, real64)), offsets, params, hidden, "tanh")
      end do
      energy => sum_over_ranks(comm, sum(tape%constant(wave(field, time)**2)))
      miss => miss + sum((h - tape%constant(wave(field, time)))**2.0_real64) &
        *(1/(fields*energy%val(1, 1)))
    end do
    error => sum_over_ranks(comm, miss)
  end function

  function wave(field, time) result(u)
    !! A solution of the heat equation at the own nodes, of two waves.
    integer, intent(in) :: field
    real(real64), intent(in) :: time
    real(real64) :: u(1, owned(2) - owned(1) + 1)
    integer :: k, number, periods(2)
    u = 0
    do k = 1, 2
      number = 2*field + k
      periods = [mod(3*number, 7) - 3, mod(5*number, 9) - 4]
      u(1, :) = u(1, :) + exp(-time*sum((2*pi*periods)**2)) &
        *sin(2*pi*(periods(1)*points%val(1, :) + periods(2)*points%val(2, :)) + number)
    end do
  end function

  subroutine improve()
    !! A step of Adam, the same on all ranks.
    associate (g => params%grad(:, 1))
      first = 0.9_real64*first + 0.1_real64*g
      second = 0.99_real64*second + 0.01_real64*g**2
      params%val(:, 1) = params%val(:, 1) - rate*(1 - step/real(steps + 1, real64)) &
        *first/(1 - 0.9_real64**step)/(sqrt(second/(1 - 0.99_real64**step)) + 1e-8_real64)
    end associate
    call params%zero_grad()
  end subroutine

  subroutine show()
    if (comm%rank == 0) print "(a, i4, a, es11.4)", "step", step, "  loss", loss%val(1, 1)
  end subroutine
end program
