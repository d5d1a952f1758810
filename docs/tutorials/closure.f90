module burgers_flow
  !! Burgers' equation  du/dt + d(u^2/2)/dx = viscosity d2u/dx2  in a periodic box of length 1, by
  !! finite volumes. Plain Fortran: the solver as it may stand in a simulation code.
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  private
  public :: advance

  real(real64), parameter :: viscosity = 1e-3_real64

contains

  pure subroutine advance(u, time_step, share)
    !! A step with upwind fluxes through the right faces, less a share of their dissipation.
    real(real64), intent(inout) :: u(:)
    real(real64), intent(in) :: time_step, share(:)
    real(real64) :: flux(size(u)), right(size(u)), dx
    dx = 1.0_real64/size(u)
    right = cshift(u, 1)
    flux = (u**2 + right**2)/4 - viscosity*(right - u)/dx
    flux = flux - (1 - share)*max(abs(u), abs(right))*(right - u)/2
    u = u - time_step/dx*(flux - cshift(flux, -1))
  end subroutine
end module

module learned_closure
  !! The share of the dissipation that a network finds superfluous at each face.
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use pyops, only: array_type, graph_type, tape_type
  use pyops_models, only: model_type
  implicit none
  private

  type, public :: closure_type
    type(model_type), private :: model
    type(graph_type), private :: graph
    type(tape_type), private :: tape
    type(array_type), pointer, private :: offsets => null()
  contains
    procedure :: load, evaluate, clear
  end type

contains

  subroutine load(self, file, cells)
    !! Reads the network and connects each cell with those within its reach.
    class(closure_type), intent(inout) :: self
    character(*), intent(in) :: file
    integer, intent(in) :: cells
    integer, allocatable :: src(:), dst(:)
    real(real32), allocatable :: offsets(:, :)
    integer :: reach, i, k
    call self%model%load(file)
    call self%model%get("reach", reach)
    dst = [((i, k = -reach, reach), i = 1, cells)]
    src = [((1 + modulo(i + k - 1, cells), k = -reach, reach), i = 1, cells)]
    offsets = reshape([((real(k, real32)/reach, k = -reach, reach), i = 1, cells)], [1, size(src)])
    call self%graph%from_edges(src, dst, num_src=cells)
    call self%model%set("edge_index", self%graph)
    self%offsets => self%tape%constant(offsets)
    call self%model%set("offsets", self%offsets)
  end subroutine

  subroutine evaluate(self, u, share)
    class(closure_type), intent(inout) :: self
    real(real64), intent(in) :: u(:)
    real(real64), intent(out) :: share(:)
    type(array_type), pointer :: x, y
    x => self%tape%constant(reshape(real(u, real32), [1, size(u)])) ! a column for each cell
    call self%model%set("u", x)
    y => self%model%apply(self%tape)
    share = y%val(1, :)
    call self%tape%clear(after=self%offsets)
  end subroutine

  subroutine clear(self)
    class(closure_type), intent(inout) :: self
    call self%tape%clear()
    call self%model%clear()
    call self%graph%clear()
  end subroutine
end module

program closure
  !! Advances waves without and with the network: closure MODEL WAVES STEPS RESULTS. WAVES is a file
  !! of NumPy (waves, cells); RESULTS has both solutions of each wave at the end, as lines of text.
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use burgers_flow, only: advance
  use learned_closure, only: closure_type
  use pyops_models, only: tensors_type
  implicit none
  type(closure_type) :: network
  type(tensors_type) :: file
  real(real64), allocatable :: waves(:, :), plain(:), helped(:), share(:)
  real(real64) :: time_step, seconds
  integer(int64) :: start, now, rate
  integer :: wave, step, steps, unit
  character(:), allocatable :: text

  call file%load(argument(2))
  waves = file%real64() ! (cells, waves)
  text = argument(3)
  read (text, *) steps
  allocate (share(size(waves, 1)))
  time_step = 0.25_real64/size(waves, 1)
  call network%load(argument(1), size(waves, 1))
  open (newunit=unit, file=argument(4), action="write")
  seconds = 0
  do wave = 1, size(waves, 2)
    plain = waves(:, wave)
    helped = plain
    do step = 1, steps
      share = 0
      call advance(plain, time_step, share)
      call system_clock(start, rate)
      call network%evaluate(helped, share)
      call system_clock(now)
      seconds = seconds + real(now - start, real64)/rate
      call advance(helped, time_step, share)
    end do
    write (unit, "(*(es16.8))") plain
    write (unit, "(*(es16.8))") helped
  end do
  close (unit)
  print "(a, f0.1, a)", "a call of the network takes ", 1e6_real64*seconds/(steps*size(waves, 2)), &
    " microseconds"
  call network%clear()

contains

  function argument(number) result(text)
    integer, intent(in) :: number
    character(:), allocatable :: text
    integer :: n
    call get_command_argument(number, length=n)
    allocate (character(n) :: text)
    call get_command_argument(number, text)
  end function
end program
