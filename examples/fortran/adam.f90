module adam
  !! Adam over a list of parameters; it works in real64, as the parameters may change by less than
  !! a real32 can tell.
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use pyops, only: operand_r4, tape_type
  implicit none
  private

  type, public :: adam_type
    type(operand_r4), allocatable :: list(:) !! the parameters, leaves of a tape
    real(real64), allocatable :: values(:), first(:), second(:) !! all of them, and the moments
    integer :: step = 0
  contains
    procedure :: add, restart, update
  end type

contains

  subroutine add(self, tape, values, rows)
    !! A parameter with so many rows.
    class(adam_type), intent(inout) :: self
    type(tape_type), intent(inout) :: tape
    real(real64), intent(in) :: values(:)
    integer, intent(in) :: rows
    type(operand_r4), allocatable :: longer(:)
    integer :: n
    if (.not. allocated(self%list)) allocate (self%list(0), self%values(0))
    n = size(self%list)
    allocate (longer(n + 1))
    longer(:n) = self%list
    longer(n + 1)%node => tape%variable(reshape(real(values, real32), [rows, size(values)/rows]))
    call move_alloc(longer, self%list)
    self%values = [self%values, values]
  end subroutine

  subroutine restart(self)
    !! Forget the moments.
    class(adam_type), intent(inout) :: self
    self%first = 0*self%values
    self%second = self%first
    self%step = 0
  end subroutine

  subroutine update(self, rate)
    !! One step along the gradients, which are set to zero after it.
    class(adam_type), intent(inout) :: self
    real(real64), intent(in) :: rate
    real(real64), allocatable :: g(:)
    integer :: i, n, last
    self%step = self%step + 1
    last = 0
    do i = 1, size(self%list)
      associate (node => self%list(i)%node)
        n = size(node%val)
        g = real(reshape(node%grad, [n]), real64)
        associate (x => self%values(last + 1:last + n), m => self%first(last + 1:last + n), &
                   v => self%second(last + 1:last + n))
          m = 0.9_real64*m + 0.1_real64*g
          v = 0.999_real64*v + 0.001_real64*g**2
          x = x - rate*(m/(1 - 0.9_real64**self%step)) &
              /(sqrt(v/(1 - 0.999_real64**self%step)) + 1e-8_real64)
          node%val = reshape(real(x, real32), shape(node%val))
        end associate
        call node%zero_grad()
        last = last + n
      end associate
    end do
  end subroutine
end module
