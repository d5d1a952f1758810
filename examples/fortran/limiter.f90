module slope_limiter
  !! The limited slope of van Albada as a differentiable operator: of the differences a and b to the
  !! neighbours on both sides of a cell
  !!
  !!     s = (a (b**2 + e) + b (a**2 + e))/(a**2 + b**2 + 2 e)
  !!
  !! which is second order where a wave is smooth, and makes no new extremes where it is not, but
  !! for some of the order of e.
  use, intrinsic :: iso_fortran_env, only: real64
  use pyops, only: matrix_r8, operator_r8
  implicit none
  private

  type, extends(operator_r8), public :: limiter_type
    real(real64) :: smoothing = 1e-4_real64 !! e; an operator may hold a whole mesh
  contains
    procedure :: forward, vjp, jvp, second_vjp
  end type

contains

  subroutine forward(self, x, y)
    class(limiter_type), intent(in) :: self
    type(matrix_r8), intent(in) :: x(:)
    real(real64), intent(out) :: y(:, :)
    y = slope(x(1)%at, x(2)%at, self%smoothing)
  end subroutine

  subroutine vjp(self, x, gy, gx)
    !! Adds gy ds/da to the gradient by a, and gy ds/db to that by b.
    class(limiter_type), intent(in) :: self
    type(matrix_r8), intent(in) :: x(:)
    real(real64), intent(in) :: gy(:, :)
    type(matrix_r8), intent(inout) :: gx(:)
    associate (a => x(1)%at, b => x(2)%at, e => self%smoothing)
      gx(1)%at = gx(1)%at + gy*first(a, b, e)
      gx(2)%at = gx(2)%at + gy*first(b, a, e)
    end associate
  end subroutine

  subroutine jvp(self, x, hx, dy)
    !! Adds ds/da ha + ds/db hb.
    class(limiter_type), intent(in) :: self
    type(matrix_r8), intent(in) :: x(:), hx(:)
    real(real64), intent(inout) :: dy(:, :)
    associate (a => x(1)%at, b => x(2)%at, e => self%smoothing)
      dy = dy + first(a, b, e)*hx(1)%at + first(b, a, e)*hx(2)%at
    end associate
  end subroutine

  subroutine second_vjp(self, x, gy, hx, gx)
    !! Adds the gradients of sum(gy*jvp).
    class(limiter_type), intent(in) :: self
    type(matrix_r8), intent(in) :: x(:), hx(:)
    real(real64), intent(in) :: gy(:, :)
    type(matrix_r8), intent(inout) :: gx(:)
    associate (a => x(1)%at, b => x(2)%at, ha => hx(1)%at, hb => hx(2)%at, e => self%smoothing)
      gx(1)%at = gx(1)%at + gy*(second(a, b, e)*ha + mixed(a, b, e)*hb)
      gx(2)%at = gx(2)%at + gy*(second(b, a, e)*hb + mixed(a, b, e)*ha)
    end associate
  end subroutine

  pure elemental real(real64) function slope(a, b, e)
    real(real64), intent(in) :: a, b, e
    slope = (a*(b**2 + e) + b*(a**2 + e))/(a**2 + b**2 + 2*e)
  end function

  pure elemental real(real64) function first(a, b, e)
    !! ds/da; ds/db is the same with a and b exchanged.
    real(real64), intent(in) :: a, b, e
    first = (b**2 + e + 2*a*b - 2*a*slope(a, b, e))/(a**2 + b**2 + 2*e)
  end function

  pure elemental real(real64) function second(a, b, e)
    !! d2s/da2.
    real(real64), intent(in) :: a, b, e
    second = 2*(b - 2*a*first(a, b, e) - slope(a, b, e))/(a**2 + b**2 + 2*e)
  end function

  pure elemental real(real64) function mixed(a, b, e)
    !! d2s/da db.
    real(real64), intent(in) :: a, b, e
    mixed = 2*(a + b - b*first(a, b, e) - a*first(b, a, e))/(a**2 + b**2 + 2*e)
  end function
end module

program limiter_example
  !! A wave is advected by a scheme with limited slopes. The operator is checked beside central
  !! differences through all steps, to second order; then Adam finds the wave at first from that at
  !! the end.
  use, intrinsic :: iso_fortran_env, only: real64
  use pyops, only: adam_type, array_type_r8, tape_type, apply_operator, gather, gradient, mean, &
    sum, operator(+), operator(-), operator(*), operator(**)
  use slope_limiter, only: limiter_type
  implicit none
  integer, parameter :: cells = 50, steps = 20
  real(real64), parameter :: courant = 0.5_real64, h = 1e-5_real64
  type(tape_type) :: tape
  type(limiter_type), target :: limiter
  type(array_type_r8), pointer :: u, loss, g
  real(real64) :: wave(1, cells), seen(1, cells), along(1, cells), x(cells), differences(3), value
  integer :: i

  x = [((i - 0.5_real64)/cells, i = 1, cells)]
  wave(1, :) = exp(-((x - 0.3_real64)/0.08_real64)**2) + merge(0.6_real64, 0.0_real64, &
                                                             x > 0.5_real64 .and. x < 0.7_real64)
  u => tape%constant(wave)
  u => advected(u)
  seen = u%val
  call tape%clear()
  call check()
  call find_wave()

contains

  function advected(start) result(u)
    !! The wave after some steps to the right, in a periodic box.
    type(array_type_r8), intent(in), target :: start
    type(array_type_r8), pointer :: u, slope, face
    integer :: left(cells), right(cells), i, step
    left = [cells, (i, i = 1, cells - 1)]
    right = [(i, i = 2, cells), 1]
    u => start
    do step = 1, steps
      slope => apply_operator(limiter, u - gather(u, left), gather(u, right) - u)
      face => u + 0.5_real64*(1 - courant)*slope
      u => u - courant*(face - gather(face, left))
    end do
  end function

  function misfit(u) result(loss)
    type(array_type_r8), intent(in), target :: u
    type(array_type_r8), pointer :: loss
    loss => mean((advected(u) - tape%constant(seen))**2)
  end function

  subroutine check()
    !! Derivatives along a direction beside central differences, at a wave that is not the solution.
    real(real64) :: slopes(1, cells), curvature, ends(2)
    integer :: side
    call random_init(repeatable=.true., image_distinct=.false.)
    call random_number(along)
    limiter%name = "limiter"
    do side = 1, 2
      u => tape%variable(0.7_real64*wave + (3 - 2*side)*h*along)
      loss => misfit(u)
      ends(side) = loss%val(1, 1)
    end do
    u => tape%variable(0.7_real64*wave)
    u%tangent = along
    loss => misfit(u)
    call loss%jvp()
    g => gradient(loss, u)
    slopes = g%val
    differences(1) = abs(sum(slopes*along)/((ends(1) - ends(2))/(2*h)) - 1)
    differences(2) = abs(sum(slopes*along)/loss%tangent(1, 1) - 1)
    loss => sum(g*tape%constant(along))
    g => gradient(loss, u) ! the product of the Hessian and the direction
    curvature = sum(g%val*along)
    do side = 1, 2
      u => tape%variable(0.7_real64*wave + (3 - 2*side)*h*along)
      g => gradient(misfit(u), u)
      ends(side) = sum(g%val*along)
    end do
    differences(3) = abs(curvature/((ends(1) - ends(2))/(2*h)) - 1)
    print "(a, 3es9.1)", "relative differences of slope, forward mode and curvature:", differences
    call tape%clear()
  end subroutine

  subroutine find_wave()
    type(adam_type) :: adam
    u => tape%variable(seen)
    adam%rate = 0.03_real64
    call adam%add(u)
    do i = 1, 150
      loss => misfit(u)
      if (i == 1) value = loss%val(1, 1)
      call loss%backward()
      call adam%step()
      call adam%zero_grad()
      call tape%clear(after=u)
    end do
    loss => misfit(u)
    print "(a, 2es9.1)", "misfit before and after training: ", value, loss%val
    print "(a, 2f7.4)", "error of the wave before and after:", norm2(seen - wave)/norm2(wave), &
      norm2(u%val - wave)/norm2(wave)
    call tape%clear()
  end subroutine
end program
