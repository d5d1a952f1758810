module listening
  !! Shared by the test programs: expectations, and the errors that the handler received.
  use iso_fortran_env, only: error_unit
  use pyops, only: array_type, array_type_r8, tape_type, set_error_handler, no_error
  implicit none
  private
  public :: expect, listen, refused, is_void, start_listening
  integer, public :: failures = 0, told = 0, last_status = 0
  integer :: heard = 0, most_heard = huge(1)
  logical, public :: watched = .false. !! whether the program looks at the status of what it does
  character(300), public :: last_message = " "
  interface is_void
    procedure :: is_void_r4, is_void_r8
  end interface

contains

  subroutine start_listening()
    !! Up to as many errors as the argument of the program says, after which there is no handler.
    character(20) :: given
    call get_command_argument(1, given)
    if (given /= " ") read (given, *) most_heard
    heard = 0
    if (heard < most_heard) call set_error_handler(listen)
  end subroutine

  subroutine expect(true, what)
    logical, intent(in) :: true
    character(*), intent(in) :: what
    if (true) return
    failures = failures + 1
    write (error_unit, '(2a)') "failed: ", what
  end subroutine

  subroutine listen(status, message)
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    told = told + 1
    last_status = status
    last_message = message
    print "(2a)", merge("watched ", "stopped ", watched), message
    heard = heard + 1
    if (heard == most_heard) call set_error_handler()
  end subroutine

  subroutine refused(tape, status, message, node, lengths)
    !! The last error was this one, once, and is noted on the tape, which is made good again. The
    !! node that comes of it has the shape that it would have had.
    type(tape_type), intent(inout) :: tape
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    class(*), intent(in), optional :: node
    integer, intent(in), optional :: lengths(:)
    call expect(told == 1 .and. last_status == status, "told once of: "//message)
    call expect(last_message == message, "'"//trim(last_message)//"' is not '"//message//"'")
    call expect(tape%status() == status .and. tape%message() == message, "noted: "//message)
    if (present(node)) then
      select type (node)
      type is (array_type)
        call expect(is_void(node, lengths), "a node of the right shape after: "//message)
      type is (array_type_r8)
        call expect(is_void(node, lengths), "a node of the right shape after: "//message)
      class default
        call expect(.false., "a node after: "//message)
      end select
    end if
    call tape%reset_status()
    told = 0
  end subroutine

  logical function is_void_r4(node, lengths) result(is)
    !! Whether a node has a shape, and nothing but NaN in it.
    type(array_type), intent(in) :: node
    integer, intent(in) :: lengths(2)
    is = all(shape(node%val) == lengths)
    if (is) is = all(node%val /= node%val) .and. .not. node%requires_grad
  end function

  logical function is_void_r8(node, lengths) result(is)
    type(array_type_r8), intent(in) :: node
    integer, intent(in) :: lengths(2)
    is = all(shape(node%val) == lengths)
    if (is) is = all(node%val /= node%val) .and. .not. node%requires_grad
  end function
end module
