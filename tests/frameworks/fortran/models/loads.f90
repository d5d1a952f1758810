program loads
  !! Writes the message of each file that is given, of a model or, after the word tensors, of
  !! tensors.
  use pyops
  use pyops_models
  implicit none
  type(model_type) :: model
  type(tensors_type) :: tensors
  character(500) :: path
  character(300) :: message
  logical :: plain
  integer :: i, status
  call set_error_handler(ignore)
  plain = .false.
  do i = 1, command_argument_count()
    call get_command_argument(i, path)
    if (path == "tensors") then
      plain = .true.
      cycle
    end if
    if (plain) then
      call tensors%load(trim(path), status, message)
      if (status == no_error) call tensors%clear()
    else
      call model%load(trim(path), status, message)
      if (status == no_error) call model%clear()
    end if
    print "(i0,1x,a)", status, trim(message)
  end do

contains

  subroutine ignore(status, message)
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    if (status == no_error .or. len(message) == 0) error stop "an error without a message"
  end subroutine
end program
