program training
  !! Optimisers: what they refuse, with messages, and that errors leave parameters as they are.
  use iso_fortran_env, only: real64
  use listening, only: expect, failures
  use pyops
  implicit none
  type, extends(adam_type) :: own_adam_type
  end type
  type(tape_type) :: tape
  type(own_adam_type) :: adam ! what programs add changes nothing
  type(sgd_type) :: sgd
  type(array_type), pointer :: w, c
  type(array_type_r8), pointer :: v
  type(array_type), target :: own
  type(operand_r4) :: list(3)
  real(real64), allocatable :: state(:)
  character(200) :: message
  integer :: status

  w => tape%variable([1.0, 2.0])
  v => tape%variable([3d0])
  c => tape%constant([1.0])
  own%val = reshape([4.0], [1, 1])
  own%requires_grad = .true.
  call adam%add(c, status, message)
  call refused(wrong_argument, &
               "adam: add: x: expected leaves that require a gradient, got none as number 1")
  list(1)%node => w
  list(2)%node => own
  call sgd%add(list, status, message)
  call refused(wrong_argument, &
               "sgd: add: x: expected leaves that require a gradient, got none as number 3")
  call expect(sgd%count() == 0, "none of a list is added if one is refused")
  list(3)%node => w
  call sgd%add(list, status, message)
  call refused(wrong_argument, &
               "sgd: add: x: expected leaves that were not added before, got one as number 3")
  call adam%add(list(:2))
  call adam%add(v)
  call expect(adam%count() == 3, "parameters of both kinds")
  call adam%step(status, message)
  call refused(wrong_argument, "adam: step: expected a parameter with a gradient, got none")
  call set_gradients(0.5)
  adam%rate = -1.5d-3
  call adam%step(status, message)
  call refused(wrong_argument, "adam: rate: expected at least 0 and finite, got -1.5e-3")
  adam%rate = 0.1d0
  adam%beta2 = 1
  call adam%step(status, message)
  call refused(wrong_argument, "adam: beta2: expected at least 0 and below 1, got 1")
  adam%beta2 = 0.999d0
  call set_gradients(-1.0)
  w%grad(2, 1) = transfer(2143289344, 1.0)
  call adam%step(status, message)
  call refused(wrong_argument, "adam: step: gradients: expected finite elements, got NaN")
  w%grad(2, 1) = 0
  deallocate (v%grad)
  allocate (v%grad(2, 1))
  call adam%step(status, message)
  call refused(wrong_shape, &
               "adam: step: parameter 1: expected val and grad of shape (1, 1), got (2, 1)")
  call expect(all(abs(w%val(:, 1) - [1.0, 2.0]) <= 0), "errors leave values as they are")

  call set_gradients(2.0)
  v%grad = 1d150
  call adam%step(status)
  call expect(status == no_error .and. all(abs(w%val(:, 1) - [0.9, 1.9]) < 1e-6) &
              .and. all(abs(v%val - 2.9d0) < 1d-12), "a step, of one huge gradient")
  call expect(abs(adam%grad_norm()/1d150 - 1) < 1d-12, "their norm")
  call adam%zero_grad()
  call expect(all(abs(own%grad) <= 0) .and. all(abs(v%grad) <= 0), "gradients set to 0")
  state = adam%state()
  call expect(size(state) == 3 + 2*4, "the size of the state")
  call adam%restore(state(2:), status, message)
  call refused(wrong_shape, "adam: restore: values: expected shape (11,), got (10,)")
  state(1) = 0.5d0
  call adam%restore(state, status, message)
  call refused(wrong_argument, &
               "adam: restore: values: expected the finite numbers of a state, got others")
  state(1) = 1
  state(11) = -state(11)
  call adam%restore(state, status, message) ! a second moment
  call refused(wrong_argument, &
               "adam: restore: values: expected the finite numbers of a state, got others")
  state(11) = -state(11)
  call adam%restore(state, status)
  call expect(status == no_error, "a state restored")
  deallocate (state)
  call tape%clear()
  call adam%step(status, message)
  call refused(wrong_argument, "adam: step: expected parameters, got one that was freed, number 1")
  call adam%zero_grad()
  call adam%clear()
  call expect(adam%count() == 0, "cleared")
  if (failures > 0) error stop 1

contains

  subroutine set_gradients(value)
    real, intent(in) :: value
    w%grad = 0*w%val + value
    own%grad = 0*own%val + value
    v%grad = 0*v%val + value
  end subroutine

  subroutine refused(expected, text)
    integer, intent(in) :: expected
    character(*), intent(in) :: text
    call expect(status == expected, "the status of: "//text)
    call expect(message == text, "'"//trim(message)//"' is not '"//text//"'")
  end subroutine
end program
