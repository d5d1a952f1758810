module tapes_test
  !! Tests tapes beyond the derivatives of single operators.
  use iso_fortran_env, only: real32, real64, int64
  use listening, only: expect, listen, refused, told
  use pyops
  implicit none
  private
  public :: run

contains

  subroutine run()
    integer :: seed(64) = 17
    call random_seed(put=seed)
    call set_error_handler(listen)
    call doublings()
    call gradients_add_up()
    call leaves_of_the_caller()
    call intrinsics_remain()
    call third_derivatives()
    call forces()
    call graph_of_nothing()
    call many_threads()
    call set_error_handler()
  end subroutine

  subroutine doublings()
    !! Each node is visited once: 2**200 paths take no time.
    type(tape_type) :: tape
    type(array_type_r8), pointer :: x, y
    integer(int64) :: start, stop, rate
    integer :: i
    x => tape%variable([1.0_real64])
    y => x
    do i = 1, 200
      y => y + y
    end do
    call system_clock(start, rate)
    call y%backward()
    call system_clock(stop)
    call expect(abs(x%grad(1, 1) - 2.0_real64**200) < 1e-12*2.0_real64**200, "doublings")
    call expect(stop - start < rate, "doublings take microseconds")
    call tape%clear()
  end subroutine

  subroutine gradients_add_up()
    type(tape_type) :: tape, same
    type(array_type), pointer :: x, y, z, held
    real(real32) :: seed(2, 2)
    x => tape%variable(reshape([1.0, 2.0, 3.0, 4.0], [2, 2]))
    y => x*x
    call y%backward()
    call y%backward()
    call expect(all(abs(x%grad - 4*x%val) < 1e-6), "gradients add up")
    call expect(.not. allocated(y%grad), "gradients of other nodes are freed")
    y%keep_grad = .true.
    call x%zero_grad()
    seed = reshape([1.0, 0.0, 0.0, -1.0], [2, 2])
    call y%backward(seed)
    call expect(all(abs(x%grad - 2*seed*x%val) < 1e-6), "a seed")
    call expect(allocated(y%grad), "a gradient that is kept")
    call tape%zero_grad()
    held => x%detach()
    z => sum(held*x)
    call z%backward()
    call expect(all(abs(x%grad - x%val) < 1e-6), "detached values are constant")
    call expect(.not. allocated(held%grad), "constants have no gradient")
    same = tape
    call same%clear(after=x)
    y => exp(x)
    call expect(y%origin%id == x%origin%id + 1, "nodes after one are freed")
    call backward(y)
    x%tangent = seed
    y => (x + 1.0)*x
    call jvp(y)
    call expect(all(abs(y%tangent - seed*(2*x%val + 1)) < 1e-5), "a tangent")
    call tape%clear()
    call tape%clear()
    call expect(tape%status() == 0, "an empty tape")
  end subroutine

  subroutine leaves_of_the_caller()
    !! Operands need not stand on a tape, if one of them does.
    type(tape_type) :: tape
    type(array_type_r8), target :: weight
    type(array_type_r8), pointer :: x, y, g
    integer :: step
    weight%val = reshape([0.5_real64, -0.5_real64], [1, 2])
    weight%requires_grad = .true.
    do step = 1, 200
      x => tape%constant(reshape([1.0_real64, 2.0_real64, -1.0_real64, 1.0_real64], [2, 2]))
      y => mean((matmul(weight, x) - 1.0_real64)**2.0_real64)
      call y%backward()
      g => gradient(y, weight)
      call expect(maxval(abs(g%val - weight%grad)) < 1e-12, "gradient by a variable")
      weight%val = weight%val - 0.1_real64*weight%grad
      call weight%zero_grad()
      call tape%clear()
    end do
    call expect(maxval(abs(weight%val - reshape([-1, 2], [1, 2])/3.0_real64)) < 1e-6, "descent")
  end subroutine

  subroutine intrinsics_remain()
    real(real32) :: x(2, 2)
    x = reshape([1.0, 2.0, 3.0, 4.0], [2, 2])
    call expect(abs(sum(exp(x)) - sum(exp([1.0, 2.0, 3.0, 4.0]))) < 1e-5, "intrinsics")
    call expect(abs(maxval(x) - 4) + abs(minval(abs(-x)) - 1) < 1e-6, "maxval, minval, abs")
    x = matmul(x, transpose(x)) - reshape([10, 14, 14, 20], [2, 2])
    call expect(all(abs(x) < 1e-5), "matmul")
  end subroutine

  subroutine third_derivatives()
    type(tape_type) :: tape
    type(array_type_r8), pointer :: x, y, first, second
    told = 0
    x => tape%variable([0.5_real64])
    y => sin(x)
    first => gradient(y, x)
    second => gradient(first, x)
    call expect(abs(second%val(1, 1) + sin(0.5_real64)) < 1e-12, "a second derivative as a node")
    call expect(told == 0, "which is no error")
    call second%backward()
    call refused(tape, no_derivative, "sin: there are no third derivatives")
    call expect(abs(second%val(1, 1) + sin(0.5_real64)) < 1e-12, "values remain")
    x%tangent = x%val
    call second%jvp()
    call refused(tape, no_derivative, "sin: there are no third derivatives")
    call expect(all(shape(second%tangent) == 1) .and. all(second%tangent /= second%tangent), &
                "no tangent")
    call tape%clear()
  end subroutine

  subroutine forces()
    !! A potential learned from its forces, and its Hessian times a vector against differences.
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type_r8), pointer :: weights, x, target, energy, force, loss, v, s
    integer, parameter :: h = 8, particles = 5, edges = particles*(particles - 1)
    integer :: src(edges), dst(edges), i, j, e, step
    real(real64) :: w(4*h + 1, 1), first, squares(size(w), 1)
    real(real64) :: moment(size(w), 1), direction(2, particles)
    real(real64) :: along(2, particles, 2), hv(2, particles)
    e = 0
    do i = 1, particles
      do j = 1, particles
        if (i == j) cycle
        e = e + 1
        src(e) = j
        dst(e) = i
      end do
    end do
    call graph%from_edges(src, dst)
    call random_number(w)
    weights => tape%variable(w - 0.5_real64)
    call random_number(direction)
    x => tape%variable(4*direction)
    call random_number(direction)
    target => tape%constant(direction - 0.5_real64)
    moment = 0
    squares = 0
    do step = 1, 150
      energy => potential(graph, x, weights, src, dst, h)
      force => -gradient(energy, x)
      loss => mean((force - target)**2.0_real64)
      if (step == 1) first = loss%val(1, 1)
      call tape%zero_grad()
      call loss%backward()
      moment = 0.9_real64*moment + 0.1_real64*weights%grad
      squares = 0.99_real64*squares + 0.01_real64*weights%grad**2
      weights%val = weights%val - 0.02_real64*moment/(1 - 0.9_real64**step) &
        /(sqrt(squares/(1 - 0.99_real64**step)) + 1e-8_real64)
      if (step < 150) call tape%clear(after=target)
    end do
    call expect(loss%val(1, 1) < 0.5*first, "training on forces")

    call random_number(direction)
    v => tape%constant(direction)
    energy => potential(graph, x, weights, src, dst, h)
    s => sum(gradient(energy, x)*v)
    call tape%zero_grad()
    call s%backward()
    hv = x%grad
    do i = 1, 2
      x%val = x%val + merge(1, -2, i == 1)*1e-5_real64*direction
      energy => potential(graph, x, weights, src, dst, h)
      call tape%zero_grad()
      call energy%backward()
      along(:, :, i) = x%grad
    end do
    along(:, :, 1) = (along(:, :, 1) - along(:, :, 2))/2e-5_real64
    call expect(maxval(abs(along(:, :, 1) - hv)) < 1e-6*max(1.0_real64, maxval(abs(hv))), &
                "a Hessian times a vector")
    call expect(tape%status() == no_error, "forces")
    call tape%clear()
    call graph%clear()
  end subroutine

  function potential(graph, x, weights, src, dst, h) result(energy)
    type(graph_type), intent(in) :: graph
    type(array_type_r8), intent(in), target :: x, weights
    integer, intent(in) :: src(:), dst(:), h
    type(array_type_r8), pointer :: energy, ones, distances
    type(tape_type) :: tape
    tape = x%tape()
    distances => gather(x, src) - gather(x, dst)
    ones => tape%constant(reshape(spread(1.0_real64, 1, size(x%val, 2)), [1, size(x%val, 2)]))
    energy => sum(gno_conv(graph, ones, distances, weights, hidden=h, activation="silu"))
  end function

  subroutine graph_of_nothing()
    !! Without edges and numbers of nodes there are no nodes, whatever the stack held before.
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type), pointer :: x, y
    integer :: none(0)
    real(real32) :: values(3, 0)
    call graph%from_edges(none, none)
    x => tape%variable(values)
    y => aggregate(graph, x)
    call expect(all(shape(y%val) == [3, 0]), "a graph without edges and numbers of nodes")
    call y%backward()
    call expect(all(shape(x%grad) == [3, 0]), "a gradient on a graph of nothing")
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine many_threads()
    !! The same bits for any number of threads.
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type), pointer :: x, e, p, y
    integer, parameter :: n = 400, degree = 10
    integer :: src(n*degree), dst(n*degree), team
    real(real32) :: r(n*degree, 2), features(8, n), coords(2, n*degree), params(16*3 + 17*64)
    real(real32), allocatable :: before(:, :), after(:, :)
    call random_number(r)
    src = 1 + int(n*r(:, 1))
    dst = 1 + int(n*r(:, 2))
    call random_number(features)
    call random_number(coords)
    call random_number(params)
    call graph%from_edges(src, dst, num_src=n)
    x => tape%variable(features)
    e => tape%variable(coords)
    p => tape%variable(params)
    do team = 1, 3
      call set_num_threads(team)
      call expect(get_num_threads() == team, "threads")
      y => gno_conv(graph, x, e, p, hidden=16, activation="tanh")
      call tape%zero_grad()
      call y%backward()
      after = p%grad
      if (team == 1) before = after
      call expect(all(.not. (before < after .or. before > after)), &
                  "the same bits for any number of threads")
    end do
    call set_num_threads(0)
    call tape%clear()
    call graph%clear()
  end subroutine
end module

program tapes
  use listening, only: failures
  use tapes_test, only: run
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
