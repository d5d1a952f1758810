module burgers_flow
  !! Burgers' equation  du/dt + d(u^2/2)/dx = viscosity d2u/dx2  in a periodic box of length 1, by
  !! finite volumes: a simulation code as it may stand. One source, as a flow code and the network
  !! that corrects it are read together.
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  private
  public :: advance, coarsened, draw_wave, smearing

  real(real64), parameter :: viscosity = 1e-3_real64, pi = acos(-1.0_real64)

contains

  subroutine advance(u, time_step, steps)
    !! Some steps with upwind fluxes, which are robust and smear the waves.
    real(real64), intent(inout) :: u(:)
    real(real64), intent(in) :: time_step
    integer, intent(in) :: steps
    real(real64) :: flux(size(u)), right(size(u)), dx
    integer :: step
    dx = 1.0_real64/size(u)
    do step = 1, steps
      right = cshift(u, 1)
      flux = (u**2 + right**2)/4 - smearing(u) - viscosity*(right - u)/dx
      u = u - time_step/dx*(flux - cshift(flux, -1))
    end do
  end subroutine

  pure function smearing(u)
    !! The part of the flux through the right faces that keeps the scheme stable.
    real(real64), intent(in) :: u(:)
    real(real64) :: smearing(size(u)), right(size(u))
    right = cshift(u, 1)
    smearing = max(abs(u), abs(right))*(right - u)/2
  end function

  pure function coarsened(u, cells)
    !! Means over the cells of a coarser grid.
    real(real64), intent(in) :: u(:)
    integer, intent(in) :: cells
    real(real64) :: coarsened(cells)
    coarsened = sum(reshape(u, [size(u)/cells, cells]), dim=1)*cells/size(u)
  end function

  subroutine draw_wave(u)
    !! A few random waves.
    real(real64), intent(out) :: u(:)
    real(real64) :: r(2, 4), x(size(u))
    integer :: i
    call random_number(r)
    x = [((i - 0.5_real64)/size(u), i = 1, size(u))]
    u = 0
    do i = 1, 4
      u = u + (2*r(1, i) - 1)/i*sin(2*pi*(i*x + r(2, i)))
    end do
  end subroutine
end module

module learned_correction
  !! How much of the smearing to take back, as a graph neural operator on the cells: a simulation
  !! needs `begin`, `learn` and `evaluate`. The share of a face is
  !!
  !!     sigmoid(sum_k w_k tanh(sum over the cells j nearby of [u_j, u_j^2] kappa(x_j - x_i) + b)_k)
  !!
  !! and the correction of a cell what then flows in less what flows out: nothing is lost or made.
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use pyops, only: adam_type, array_type, graph_type, operand_r4, tape_type, gno_aggregate, &
    gno_conv, matmul, mean, sigmoid, tanh, operator(+), operator(-), operator(*), operator(**)
  implicit none
  private

  integer, parameter :: reach = 3, hidden = 12, width = 16

  type, public :: correction_type
    type(tape_type) :: tape
    type(adam_type) :: optimiser
    type(operand_r4) :: parameters(3)
    real(real64) :: unit = 1 !! the root mean square of what it learns
    type(array_type), pointer :: last_leaf => null()
  contains
    procedure :: begin, learn, evaluate
  end type

  type, public :: cells_type
    !! So many grids side by side: the edges of each cell to its neighbours, and to its faces.
    type(graph_type) :: graph, faces
    type(array_type), pointer :: offsets => null(), signs => null()
  contains
    procedure :: connect, clear
  end type

contains

  subroutine connect(self, correction, cells, copies)
    class(cells_type), intent(inout) :: self
    type(correction_type), intent(inout) :: correction
    integer, intent(in) :: cells, copies
    integer, dimension((2*reach + 1)*cells*copies) :: src, dst
    real(real32) :: offsets(1, size(src)), signs(1, 2*cells*copies)
    integer :: e, copy, i, k
    e = 0
    do copy = 0, copies - 1
      do i = 0, cells - 1
        do k = -reach, reach
          e = e + 1
          src(e) = copy*cells + modulo(i + k, cells) + 1
          dst(e) = copy*cells + i + 1
          offsets(1, e) = real(k, real32)/reach
        end do
      end do
    end do
    call self%graph%from_edges(src, dst, num_src=cells*copies)
    self%offsets => correction%tape%constant(offsets)
    associate (left => pack([(e, e = 1, size(src))], nint(reach*offsets(1, :)) == -1), &
               own => pack([(e, e = 1, size(src))], nint(reach*offsets(1, :)) == 0))
      call self%faces%from_edges([src(left), src(own)], [dst(left), dst(own)], &
                                 num_src=cells*copies)
    end associate
    signs(1, :cells*copies) = 1
    signs(1, cells*copies + 1:) = -1
    self%signs => correction%tape%constant(signs)
    correction%last_leaf => self%signs
  end subroutine

  subroutine clear(self)
    class(cells_type), intent(inout) :: self
    call self%graph%clear()
    call self%faces%clear()
  end subroutine

  subroutine begin(self)
    !! Parameters to start from.
    class(correction_type), intent(inout) :: self
    integer, parameter :: block = 2*hidden + (hidden + 1)*2*width
    real(real64) :: r(block + 2*width)
    call random_number(r)
    r = 2*r - 1
    self%parameters(1)%node => self%tape%variable(real( &
      r(:block)*[spread(2.0_real64, 1, 2*hidden), spread(0.5_real64, 1, block - 2*hidden)], real32))
    self%parameters(2)%node => self%tape%variable(real(r(block + 1:block + width), real32))
    self%parameters(3)%node => self%tape%variable( &
      reshape(real(r(block + width + 1:)/width, real32), [1, width]))
    call self%optimiser%add(self%parameters)
  end subroutine

  function network(self, cells, u, flux) result(y)
    class(correction_type), intent(inout) :: self
    type(cells_type), intent(in) :: cells
    real(real64), intent(in) :: u(:), flux(:)
    type(array_type), pointer :: y
    real(real32) :: features(2, size(u))
    features(1, :) = real(u, real32)
    features(2, :) = features(1, :)**2
    associate (p => self%parameters)
      y => gno_conv(cells%graph, self%tape%constant(features), cells%offsets, p(1)%node, hidden)
      y => sigmoid(matmul(p(3)%node, tanh(y + p(2)%node)))
      y => y*self%tape%constant(reshape(real(flux/self%unit, real32), [1, size(u)]))
      y => gno_aggregate(cells%faces, y, cells%signs)
    end associate
  end function

  real(real64) function learn(self, cells, u, flux, target, rate)
    !! One step of Adam towards the corrections that would have been right; the mean square error.
    class(correction_type), intent(inout) :: self
    type(cells_type), intent(in) :: cells
    real(real64), intent(in) :: u(:), flux(:), target(:), rate
    type(array_type), pointer :: loss
    loss => network(self, cells, u, flux) &
            - self%tape%constant(reshape(real(target/self%unit, real32), [1, size(target)]))
    loss => mean(loss**2.0)
    call loss%backward()
    learn = loss%val(1, 1)
    self%optimiser%rate = rate
    call self%optimiser%step()
    call self%optimiser%zero_grad()
    call self%tape%clear(after=self%last_leaf)
  end function

  subroutine evaluate(self, cells, u, flux, c)
    class(correction_type), intent(inout) :: self
    type(cells_type), intent(in) :: cells
    real(real64), intent(in) :: u(:), flux(:)
    real(real64), intent(out) :: c(:)
    type(array_type), pointer :: y
    y => network(self, cells, u, flux)
    c = self%unit*y%val(1, :)
    call self%tape%clear(after=self%last_leaf)
  end subroutine
end module

program burgers
  !! A flow solver on a coarse grid with a correction that it learns from a finer grid and then
  !! calls in each step: burgers [STEPS OF TRAINING].
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use burgers_flow, only: advance, coarsened, draw_wave, smearing
  use learned_correction, only: correction_type, cells_type
  implicit none
  integer, parameter :: cells = 64, finer = 16, steps = 120, waves = 24, batch = 16
  real(real64), parameter :: time_step = 0.25_real64/cells
  type(correction_type) :: correction
  type(cells_type) :: many, one
  real(real64) :: u(cells, 0:steps, waves), missing(cells, steps, waves)
  integer :: training

  call read_arguments()
  call solve_finely(u)
  call find_missing()
  call correction%begin()
  call many%connect(correction, cells, batch)
  call one%connect(correction, cells, 1)
  call train()
  call simulate()
  call correction%tape%clear()
  call many%clear()
  call one%clear()

contains

  subroutine read_arguments()
    character(12) :: text
    training = 1000
    call random_init(repeatable=.true., image_distinct=.false.)
    call get_command_argument(1, text)
    if (text /= "") read (text, *) training
  end subroutine

  subroutine solve_finely(u)
    !! Random waves, step by step on a fine grid, as means over the coarse cells.
    real(real64), intent(out) :: u(:, 0:, :)
    real(real64) :: fine(cells*finer)
    integer :: wave, step
    do wave = 1, size(u, 3)
      call draw_wave(fine)
      u(:, 0, wave) = coarsened(fine, cells)
      do step = 1, steps
        call advance(fine, time_step/finer, finer)
        u(:, step, wave) = coarsened(fine, cells)
      end do
    end do
  end subroutine

  subroutine find_missing()
    !! By how much a coarse step falls short.
    real(real64) :: next(cells)
    integer :: wave, step
    do wave = 1, waves
      do step = 1, steps
        next = u(:, step - 1, wave)
        call advance(next, time_step, 1)
        missing(:, step, wave) = (u(:, step, wave) - next)/(time_step*cells)
      end do
    end do
    correction%unit = sqrt(sum(missing**2)/size(missing))
  end subroutine

  subroutine train()
    !! In batches of steps of any waves.
    real(real64) :: first(cells, batch), flux(cells, batch), target(cells, batch), r(2, batch), loss
    integer :: step, i, n, wave
    loss = 1
    do step = 1, training
      call random_number(r)
      do i = 1, batch
        n = 1 + int(steps*r(1, i))
        wave = 1 + int(waves*r(2, i))
        first(:, i) = u(:, n - 1, wave)
        flux(:, i) = smearing(first(:, i))
        target(:, i) = missing(:, n, wave)
      end do
      loss = correction%learn(many, [first], [flux], [target], &
                              1e-2_real64*(1 - 0.95_real64*step/training))
    end do
    print "(a, i0, a, f6.3)", "after ", training, " steps of training the error of a step is ", &
      sqrt(loss)
  end subroutine

  subroutine simulate()
    !! New waves on the coarse grid: the loop of the simulation, without and with the correction.
    integer, parameter :: new = 8
    real(real64) :: truth(cells, 0:steps, new), plain(cells), helped(cells), c(cells)
    real(real64) :: time, apart(2)
    integer :: wave, step
    integer(int64) :: start, now, rate
    call solve_finely(truth)
    apart = 0
    time = 0
    do wave = 1, new
      plain = truth(:, 0, wave)
      helped = plain
      do step = 1, steps
        call advance(plain, time_step, 1)
        call system_clock(start, rate)
        call correction%evaluate(one, helped, smearing(helped), c)
        call system_clock(now)
        time = time + real(now - start, real64)/rate
        call advance(helped, time_step, 1)
        helped = helped + time_step*cells*c
      end do
      associate (right => truth(:, steps, wave))
        apart = apart + [norm2(plain - right), norm2(helped - right)]/norm2(right)/new
      end associate
    end do
    print "(a, f6.3, a, f6.3, a)", "relative error at the end: ", apart(1), ", ", apart(2), &
      " with the correction"
    print "(a, f0.1, a)", "a call of it takes ", 1e6_real64*time/(new*steps), " microseconds"
  end subroutine
end program
