module listening
  !! What the test programs share: expectations, and the errors that have been told.
  use iso_fortran_env, only: error_unit
  use pyops, only: tape_type
  implicit none
  private
  public :: expect, listen, refused
  integer, public :: failures = 0, told = 0, last_status = 0
  character(300), public :: last_message = " "

contains

  subroutine expect(true, what)
    logical, intent(in) :: true
    character(*), intent(in) :: what
    if (true) return
    failures = failures + 1
    write (error_unit, '(2a)') "failed: ", what
  end subroutine

  subroutine listen(status, message)
    integer, intent(in) :: status
    character(*), intent(in) :: message
    told = told + 1
    last_status = status
    last_message = message
  end subroutine

  subroutine refused(tape, status, message)
    !! The last error was this one, once, and is noted on the tape, which is made good again.
    type(tape_type), intent(inout) :: tape
    integer, intent(in) :: status
    character(*), intent(in) :: message
    call expect(told == 1 .and. last_status == status, "told once of: "//message)
    call expect(last_message == message, "'"//trim(last_message)//"' is not '"//message//"'")
    call expect(tape%status() == status .and. tape%message() == message, "noted: "//message)
    call tape%reset_status()
    told = 0
  end subroutine
end module
