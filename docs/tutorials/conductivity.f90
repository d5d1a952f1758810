module heat
  !! Heat conduction  du/dt = d/dx (k(u) du/dx)  in an insulated rod of length 1, by finite volumes.
  !!
  !! Plain Fortran, without pyops: the solver as it may stand in a simulation code.
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  private
  public :: advance, coarsened, conductivity, draw_profile, largest

  real(real64), parameter :: largest = 1 !! bound of the conductivity, for the time step

contains

  pure elemental function conductivity(u) result(k)
    !! The true law, which the learning program uses for its measurements alone.
    real(real64), intent(in) :: u
    real(real64) :: k
    k = 0.15_real64 + 0.75_real64*exp(-((u - 0.55_real64)/0.13_real64)**2)
  end function

  pure subroutine advance(u, time_step, steps)
    !! Explicit steps with the true law.
    real(real64), intent(inout) :: u(:)
    real(real64), intent(in) :: time_step
    integer, intent(in) :: steps
    real(real64) :: flux(0:size(u))
    integer :: step, n
    n = size(u)
    flux = 0 ! also at both ends, which are insulated
    do step = 1, steps
      flux(1:n - 1) = conductivity((u(2:) + u(:n - 1))/2)*(u(2:) - u(:n - 1))*n
      u = u + time_step*n*(flux(1:) - flux(:n - 1))
    end do
  end subroutine

  pure function coarsened(u, cells)
    !! Means over the cells of a coarser grid.
    real(real64), intent(in) :: u(:)
    integer, intent(in) :: cells
    real(real64) :: coarsened(cells)
    coarsened = sum(reshape(u, [size(u)/cells, cells]), dim=1)*cells/size(u)
  end function

  subroutine draw_profile(u)
    !! Random smooth temperatures between 0 and 1.
    real(real64), intent(out) :: u(:)
    real(real64), parameter :: pi = acos(-1.0_real64)
    real(real64) :: r(5), x(size(u))
    integer :: i
    call random_number(r)
    x = [((i - 0.5_real64)/size(u), i = 1, size(u))]
    u = 0
    do i = 1, size(r)
      u = u + (2*r(i) - 1)*cos(pi*i*x)
    end do
    u = (u - minval(u))/(maxval(u) - minval(u))
  end subroutine
end module

program learn_conductivity
  !! Learns k(u) from measured temperatures, by gradients through the steps of the solver:
  !!
  !!     conductivity WEIGHTS RESULTS [STEPS]
  !!
  !! WEIGHTS holds the parameters of the kernel network, little-endian float32 in the order of
  !! pyops.blocks.pack_gno; the trained ones replace them. RESULTS is a text file.
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use heat, only: advance, coarsened, conductivity, draw_profile, largest
  use pyops
  implicit none
  integer, parameter :: cells = 32, finer = 8, hidden = 16
  integer, parameter :: rods = 12, frames = 24, substeps = 10 ! a frame is measured every 10 steps
  integer, parameter :: batch = 8, window = 2 ! a batch: 8 windows of 2 frames
  real(real64), parameter :: time_step = 0.4_real64/(largest*cells**2)

  type :: rods_type
    !! Rods side by side in one graph: nodes are cells, each face is an edge in both directions.
    type(graph_type) :: graph
    type(array_type), pointer :: ones => null()
  end type

  type(tape_type) :: tape
  type(array_type), pointer :: weights, last_leaf
  type(rods_type) :: many, single
  real(real64) :: measured(cells, 0:frames, rods), front(cells, 0:frames)
  character(:), allocatable :: weights_file, results_file
  integer :: steps

  call read_arguments()
  call measure()
  call read_weights()
  call connect(many, batch)
  call connect(single, 1)
  call train()
  call write_weights()
  call write_results()
  call tape%clear()
  call many%graph%clear()
  call single%graph%clear()

contains

  subroutine read_arguments()
    character(8) :: text
    weights_file = argument(1)
    results_file = argument(2)
    call get_command_argument(3, text)
    steps = 600
    if (text /= "") read (text, *) steps
  end subroutine

  function argument(number) result(text)
    integer, intent(in) :: number
    character(:), allocatable :: text
    integer :: n
    call get_command_argument(number, length=n)
    allocate (character(n) :: text)
    call get_command_argument(number, text)
  end function

  subroutine measure()
    !! Temperatures of a fine simulation with the true law, as means over the coarse cells.
    real(real64) :: u(cells*finer)
    integer :: rod, frame
    call random_init(repeatable=.true., image_distinct=.false.)
    do rod = 0, rods
      if (rod == 0) then
        u(:size(u)/2) = 0.95_real64 ! for the test: a hot half and a cold one
        u(size(u)/2 + 1:) = 0.05_real64
      else
        call draw_profile(u)
      end if
      do frame = 0, frames
        if (frame > 0) call advance(u, time_step/finer**2, substeps*finer**2)
        if (rod == 0) then
          front(:, frame) = coarsened(u, cells)
        else
          measured(:, frame, rod) = coarsened(u, cells)
        end if
      end do
    end do
  end subroutine

  ! -- the closure, on a tape ---------------------------------------------------------------------

  subroutine connect(self, count)
    type(rods_type), intent(inout) :: self
    integer, intent(in) :: count
    integer :: left(count*(cells - 1)), rod, i
    left = [((rod*cells + i, i = 1, cells - 1), rod = 0, count - 1)]
    call self%graph%from_edges([left, left + 1], [left + 1, left], num_src=count*cells)
    self%ones => tape%constant(spread([1.0], 2, count*cells))
    last_leaf => self%ones
  end subroutine

  function closure(u) result(k)
    !! The learned conductivity at temperatures u: softplus(V tanh(U u + b_u) + b_v).
    type(array_type), intent(in), target :: u
    type(array_type), pointer :: k
    k => softplus(gno_kernel(u, weights, hidden=hidden, in_features=1, out_features=1, &
                             activation="tanh"))
  end function

  function solve(rod, start, steps) result(u)
    !! The scheme of `advance` with the learned law: what flows into each cell is a sum over its
    !! edges, sum_j k((u_j + u_i)/2) (u_j - u_i), which loses no heat.
    type(rods_type), intent(in) :: rod
    type(array_type), intent(in), target :: start
    integer, intent(in) :: steps
    type(array_type), pointer :: u, k
    integer :: step
    u => start
    do step = 1, steps
      k => closure(0.5*edge_update(rod%graph, u, u, mode="sum"))
      k => k*edge_difference(rod%graph, u, u)
      u => u + real(time_step*cells**2, real32)*aggregate(rod%graph, rod%ones, weight=k)
    end do
  end function

  subroutine train()
    !! Adam on the mean square error of the temperatures at the frames of short windows.
    real(real64), parameter :: rate = 0.03_real64
    real(real64) :: r(2, batch), loss_mean
    real(real32) :: frame_values(cells*batch, 0:window)
    type(array_type), pointer :: u, loss
    type(adam_type) :: adam
    integer :: step, i, frame, rod, start
    loss_mean = 0
    adam%beta2 = 0.99_real64
    call adam%add(weights)
    do step = 1, steps
      call random_number(r)
      do i = 1, batch
        rod = 1 + int(rods*r(1, i))
        start = int((frames - window + 1)*r(2, i)**2) ! early frames more often: they change most
        frame_values((i - 1)*cells + 1:i*cells, :) = &
          real(measured(:, start:start + window, rod), real32)
      end do
      u => tape%constant(row(frame_values(:, 0)))
      loss => null()
      do frame = 1, window
        u => solve(many, u, substeps)
        if (frame == 1) then
          loss => mean((u - tape%constant(row(frame_values(:, 1))))**2.0)
        else
          loss => loss + mean((u - tape%constant(row(frame_values(:, frame))))**2.0)
        end if
      end do
      call loss%backward()
      adam%rate = rate*(1 - 0.9_real64*step/steps)
      call adam%step()
      call adam%zero_grad()
      loss_mean = loss_mean + loss%val(1, 1)/(window*100)
      call tape%clear(after=last_leaf)
      if (mod(step, 100) == 0) then
        print "(a, i4, a, f8.5)", "step ", step, "   temperature error", sqrt(loss_mean)
        loss_mean = 0
      end if
    end do
  end subroutine

  pure function row(values)
    real(real32), intent(in) :: values(:)
    real(real32) :: row(1, size(values))
    row(1, :) = values
  end function

  ! -- files --------------------------------------------------------------------------------------

  subroutine read_weights()
    !! Reads the weights; with a file that does not fit, ends with a message.
    real(real32), allocatable :: values(:)
    integer :: unit, bytes
    type(array_type), pointer :: k
    call tape%continue_on_error()
    open (newunit=unit, file=weights_file, access="stream", form="unformatted", action="read")
    inquire (unit, size=bytes)
    allocate (values(bytes/4))
    read (unit) values
    close (unit)
    weights => tape%variable(values)
    k => closure(tape%constant(row([0.0, 0.5, 1.0])))
    print "(a, 3f11.7)", "k at 0, 0.5 and 1:", k%val
    if (tape%status() /= no_error) then
      print "(a, i0, 2a)", "status ", tape%status(), ", ", trim(tape%message())
      print "(a)", "the program goes on: it could choose another law; this one ends in good order"
      stop
    end if
    call tape%clear(after=weights)
  end subroutine

  subroutine write_weights()
    integer :: unit
    open (newunit=unit, file=weights_file, access="stream", form="unformatted", action="write", &
          status="replace")
    write (unit) weights%val
    close (unit)
  end subroutine

  subroutine write_results()
    !! Law and front: true, learned.
    integer, parameter :: points = 101
    type(array_type), pointer :: k, u
    real(real64) :: at
    integer :: unit, i, frame
    open (newunit=unit, file=results_file, action="write")
    k => closure(tape%constant(row([(real(i - 1, real32)/(points - 1), i = 1, points)])))
    do i = 1, points
      at = (i - 1)/(points - 1.0_real64)
      write (unit, "(3es16.8)") at, conductivity(at), k%val(1, i)
    end do
    u => tape%constant(row(real(front(:, 0), real32)))
    do frame = 0, frames
      if (frame > 0) u => solve(single, u, substeps)
      write (unit, "(*(es16.8))") front(:, frame)
      write (unit, "(*(es16.8))") u%val
    end do
    close (unit)
  end subroutine
end program
