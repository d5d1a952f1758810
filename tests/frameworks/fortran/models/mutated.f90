program mutated
  !! Loads a model file, or one of NumPy, with bytes changed, removed and inserted, thousands of
  !! times: every load returns a status, and a model that loads computes, or reports why not:
  !! mutated MODEL COUNT FOLDER.
  use iso_fortran_env, only: int8, int64
  use pyops
  use pyops_models
  implicit none
  type(model_type) :: model
  type(tensors_type) :: tensors
  type(tape_type) :: tape
  type(graph_type) :: graph
  type(array_type), pointer :: x, y
  character(500) :: path, folder
  character(300) :: message
  integer(int8), allocatable :: bytes(:), changed(:)
  integer :: count, i, k, status, unit, length, seed(64) = 5, read_by_name = 0
  integer(kind(no_error)) :: state
  real, allocatable :: values(:, :)
  integer :: outcomes(0:7) = 0
  integer(int64) :: header
  call set_error_handler(ignore)
  call random_seed(put=seed)
  call get_command_argument(1, path)
  inquire (file=trim(path), size=length)
  allocate (bytes(length))
  open (newunit=unit, file=trim(path), access="stream", form="unformatted", action="read")
  read (unit) header, bytes(9:)
  rewind (unit)
  read (unit) bytes
  close (unit)
  if (header < 0 .or. header > length - 8) header = 80 ! of NumPy
  call get_command_argument(2, path)
  read (path, *) count
  call get_command_argument(3, folder)
  path = trim(folder)//"/mutated.safetensors"
  call graph%from_edges([1, 2, 3, 1], [2, 3, 1, 1], num_src=3)
  call tape%continue_on_error()
  do i = 1, count
    call mutate(bytes, int(header), changed)
    open (newunit=unit, file=trim(path), access="stream", form="unformatted", status="replace")
    write (unit) changed
    close (unit)
    call tensors%load(trim(path), status, message)
    if (status == 0) read_by_name = read_by_name + tensors%count()
    do k = 1, tensors%count()
      values = tensors%real32(tensors%name(k), state)
    end do
    call model%load(trim(path), status, message)
    if (status < 0 .or. status > 7) error stop "an unknown status"
    outcomes(status) = outcomes(status) + 1
    if (status /= 0) then
      if (len_trim(message) == 0) error stop "no message"
    else
      x => tape%constant(reshape([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [3, 3]))
      y => model%apply(tape, x)
      if (tape%status() == 0) call y%backward()
      call tape%clear()
      call tape%continue_on_error()
      call model%clear()
    end if
  end do
  print "(9(i0,1x))", outcomes, read_by_name
  call tensors%clear()
  deallocate (bytes, changed, values)
  call graph%clear()

contains

  subroutine ignore(status, message)
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    if (status == 0 .or. len(message) == 0) error stop "an error without a message"
  end subroutine

  integer function drawn(most)
    !! A number from 1 to `most`.
    integer, intent(in) :: most
    real :: r
    call random_number(r)
    drawn = min(most, 1 + int(r*most))
  end function

  subroutine mutate(bytes, header, changed)
    integer(int8), intent(in) :: bytes(:)
    integer, intent(in) :: header
    integer(int8), allocatable, intent(out) :: changed(:)
    character(*), parameter :: characters = '{}[]",:0123456789-+.eEtfn\u xyw'
    integer :: k, at, n
    changed = bytes
    if (drawn(2) == 1) then
      call change_words(header, changed)
      return
    end if
    do k = 1, drawn(3)
      n = size(changed)
      at = drawn(min(n, 8 + header))
      select case (drawn(7))
      case (1)
        changed(at) = int(drawn(256) - 129, int8)
      case (2)
        changed(at) = int(iachar(characters(drawn(len(characters)):)), int8)
      case (3)
        changed = [changed(:at - 1), changed(min(n, at + drawn(8)):)]
      case (4)
        changed = [changed(:at), changed(at - min(at, drawn(30)) + 1:)]
      case (5)
        changed = changed(:at)
      case (6)
        changed(drawn(8)) = int(drawn(256) - 129, int8)
      case (7)
        changed(at) = int(iachar("0") + drawn(10) - 1, int8)
      end select
      if (size(changed) < 10) exit
      if (size(changed) > 8 + header .and. drawn(2) == 1) call correct_length(bytes, changed)
    end do
  end subroutine

  subroutine change_words(header, changed)
    !! Changes digits and letters, which leaves most files well-formed, or copies a word over
    !! another.
    integer, intent(in) :: header
    integer(int8), intent(inout) :: changed(:)
    integer :: k, at, from, length
    do k = 1, drawn(2)
      do
        at = 8 + drawn(header)
        if (is_word(changed(at))) exit
      end do
      if (drawn(2) == 1) then
        if (changed(at) < 58) changed(at) = int(47 + drawn(10), int8)
        if (changed(at) > 58) changed(at) = int(96 + drawn(26), int8)
      else
        from = 8 + drawn(header)
        length = 0
        do while (max(at, from) + length <= 8 + header)
          if (.not. is_word(changed(at + length)) .or. .not. is_word(changed(from + length))) exit
          length = length + 1
        end do
        changed(at:at + length - 1) = changed(from:from + length - 1)
      end if
    end do
  end subroutine

  logical function is_word(byte)
    integer(int8), intent(in) :: byte
    is_word = (byte >= 48 .and. byte <= 57) .or. (byte >= 97 .and. byte <= 122)
  end function

  subroutine correct_length(bytes, changed)
    !! Stores the length of the header that a change of the number of bytes implies.
    integer(int8), intent(in) :: bytes(:)
    integer(int8), intent(inout) :: changed(:)
    integer :: header
    header = iand(int(bytes(1)), 255) + 256*iand(int(bytes(2)), 255) + size(changed) - size(bytes)
    if (header < 0) return
    changed(1:2) = [low(header), low(header/256)]
  end subroutine

  integer(int8) function low(number)
    integer, intent(in) :: number
    low = int(iand(number, 127), int8)
    if (btest(number, 7)) low = int(low - 128, int8)
  end function
end program
