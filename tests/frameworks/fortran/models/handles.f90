program handles
  !! Models as handles: what can be asked, set and saved, and every mistake that we know.
  use iso_fortran_env, only: int64, real32, real64
  use listening, only: expect, failures, listen, refused, told, last_message
  use pyops
  use pyops_models
  implicit none
  type(model_type) :: model, other, empty
  type(tape_type) :: tape
  type(array_type), pointer :: x, y, w
  type(array_type_r8), pointer :: x8, y8
  type(array_type), target :: own
  type(tensors_type) :: tensors
  type(graph_type) :: graph
  real(real32) :: rate
  real(real64) :: cutoff
  integer :: count, status
  integer(kind(no_error)) :: state
  integer(int64) :: wide
  logical :: flag
  character(:), allocatable :: text
  real(real32), allocatable :: values(:, :)
  character(300) :: message
  call set_error_handler(listen)
  call tape%continue_on_error()
  x => tape%variable(reshape([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]))
  call before_loading()
  call model%load("model.safetensors")
  call expect(logical(model%is_loaded()) .and. model%precision() == real32, "loaded")
  call expect(model%count() == 2 .and. model%name(1) == "weight" .and. model%name(3) == "", "names")
  call hyperparameters()
  call values_and_gradients()
  call inputs()
  call copies()
  call saving()
  call other_precision()
  call plain_tensors()
  call tape%clear()
  call model%clear()
  deallocate (text, values, own%val, own%grad)
  if (failures > 0) error stop 1

contains

  subroutine before_loading()
    y => empty%apply(tape, x)
    call refused(tape, wrong_argument, "apply: expected a model with one array as input", y, [1, 1])
    y => empty%apply(tape)
    call refused(tape, wrong_argument, "apply: expected a model that has been loaded", y, [1, 1])
    call empty%set("x", x)
    call received("set: x: expected a model that has been loaded")
    y => empty%parameter(1)
    call received("parameter: number: expected that of a parameter in the precision of the model")
    call empty%get("cutoff", cutoff)
    call received("get: cutoff: expected a hyperparameter that is a number")
    call empty%save("empty.safetensors", status)
    call received("save: empty.safetensors: expected a model that has been loaded")
    call expect(status == wrong_argument .and. empty%count() == 0 .and. empty%name(1) == "", "none")
    call empty%load("absent.safetensors", status)
    call received("load: absent.safetensors: cannot be opened")
    call expect(status == wrong_file .and. .not. logical(empty%is_loaded()), "an absent file")
  end subroutine

  subroutine received(expected)
    character(*), intent(in) :: expected
    call expect(told == 1 .and. last_message == expected, trim(last_message)//" is not "//expected)
    told = 0
  end subroutine

  subroutine hyperparameters()
    call model%get("cutoff", cutoff)
    call expect(abs(cutoff - 0.30000000000000004_real64) <= 0, "float64 to the last bit")
    call model%get("cutoff", rate)
    call expect(abs(rate - 0.3) <= 0, "float32")
    call model%get("count", count)
    call model%get("count", wide)
    call expect(count == 12 .and. wide == 12, "integers")
    call model%get("flag", flag)
    call expect(flag, "a flag")
    call model%get("text", text)
    call expect(text == 'say "' // char(195)//char(169) // '"', "a text")
    call model%get("text", count, state)
    call expect(state == wrong_argument .and. count == 0, "another type")
    call received("get: text: expected a hyperparameter that is an integer")
    call model%get("cutoff", count)
    call received("get: cutoff: expected a hyperparameter that is an integer")
    call model%get("none", flag)
    call received("get: none: expected a hyperparameter that is true or false")
  end subroutine

  subroutine values_and_gradients()
    !! y = tanh(W x + b), and its second output W x.
    real(real32) :: expected(2, 2)
    type(array_type), pointer :: b, force
    type(operand_r4), allocatable :: list(:)
    type(operand_r8), allocatable :: list8(:)
    w => model%parameter("weight")
    b => model%parameter(2)
    y => model%apply(tape, x)
    expected = matmul(transpose(w%val), x%val) + spread(b%val(:, 1), 2, 2)
    call expect(all(abs(y%val - tanh(expected)) < 1e-6), "values")
    y => model%output(2)
    call expect(all(abs(y%val - expected) < 1e-5), "the second output")
    call y%backward()
    call expect(all(abs(b%grad(:, 1) - 2) < 1e-6), "gradient of a parameter")
    call expect(all(abs(w%grad - spread(sum(x%val, 2), 2, 2)) < 1e-5), "gradient of a matrix")
    call model%zero_grad()
    call expect(all(abs(w%grad) <= 0), "zero_grad")
    x%tangent = 0*x%val + 1
    w%tangent = 0*w%val + 2
    call y%jvp()
    call expect(all(abs(y%tangent - matmul(transpose(w%val), x%tangent) &
                        - matmul(transpose(w%tangent), x%val)) < 1e-4), "jvp")
    deallocate (x%tangent, w%tangent)
    y => model%apply(tape, x)
    force => gradient(y, x)
    y => sum(force*force)
    call y%backward()
    call expect(any(abs(w%grad) > 0), "gradients of a gradient")
    y => model%apply(tape, x)
    force => gradient(y, w)
    call expect(all(shape(force%val) == shape(w%val)), "a parameter as node")
    y => model%output(3)
    call received("output: number: expected that of an output of the last call in the precision " &
                  //"of the model")
    y => model%parameter("none")
    call received("parameter: name: expected that of a real tensor in the precision of the " &
                  //"model, got none")
    y8 => model%parameter_r8("weight")
    call received("parameter: name: expected that of a real tensor in the precision of the " &
                  //"model, got weight")
    call model%zero_grad()
    list = model%parameters()
    call expect(size(list) == 2, "all parameters")
    b%requires_grad = .false.
    list = model%parameters()
    call expect(size(list) == 1 .and. associated(list(1)%node, w), "those that are trained")
    b%requires_grad = .true.
    list8 = model%parameters_r8()
    call expect(size(list8) == 0, "none of another precision")
    call received("parameters: expected a model in this precision, got one of another or none")
  end subroutine

  subroutine inputs()
    call model%set("y", x)
    call received("set: y: expected the name of an input that is an array, and the precision of " &
                  //"the model, real32")
    x8 => tape%constant(reshape([1.0_real64], [1, 1]))
    call model%set("x", x8, state, message)
    call expect(state == wrong_argument .and. message == last_message, "a status")
    call received("set: x: expected the name of an input that is an array, and the precision of " &
                  //"the model, real32")
    call model%set("x", [1, 2, 3])
    call received("set: x: expected the name of an input that is integers")
    call graph%from_edges([1], [1])
    call model%set("x", graph)
    call received("set: x: expected the name of an input that is a graph")
    call graph%clear()
    y => model%apply(tape, transpose(x))
    call refused(tape, wrong_shape, "apply: x: expected 3 rows, got shape (2, 3)", y, [1, 1])
    y8 => model%apply(tape, x8)
    call expect(told == 1, "another precision")
    call refused(tape, wrong_argument, "apply: x: expected arrays of the precision of the model, " &
                 //"real32")
    call model%set("x", x)
    y => model%apply(tape)
    call expect(size(y%val) == 4, "an input by name")
    own%val = x%val
    own%requires_grad = .true.
    call model%set("x", own)
    y => model%apply(tape)
    call y%backward()
    call expect(all(shape(own%grad) == [3, 2]), "an input without a tape")
    call model%zero_grad()
    call model%set("x", x)
    call tape%clear()
    y => model%apply(tape)
    call refused(tape, wrong_argument, &
                 "apply: x: expected a node that has not been freed, with val", y, [1, 1])
    x => tape%variable(reshape([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]))
  end subroutine

  subroutine copies()
    other = model
    call expect(logical(other%is_loaded()), "a copy")
    call other%load("absent.safetensors", status)
    told = 0
    call expect(logical(other%is_loaded()) .and. logical(model%is_loaded()), &
                "an absent file changes nothing")
    call other%clear()
    call expect(.not. logical(model%is_loaded()) .and. model%count() == 0, "copies end together")
    call other%load("model.safetensors")
    call expect(.not. logical(model%is_loaded()), "a handle that was cleared stays so")
    call other%clear()
    call model%load("model.safetensors")
  end subroutine

  subroutine saving()
    w => model%parameter("weight")
    w%val = w%val + 1
    call model%save("saved.safetensors")
    call other%load("saved.safetensors", kind=real64)
    call expect(other%precision() == real64, "another precision")
    y8 => other%parameter_r8("weight")
    call expect(all(abs(y8%val - w%val) < 1e-6), "saved values")
    y8%val = y8%val*2
    call other%save("saved_again.safetensors")
    call other%load("saved_again.safetensors")
    y => other%parameter("weight")
    call expect(all(abs(y%val - 2*w%val) <= 0), "saved in the type of the file")
    w%val = reshape([1.0, 2.0], [1, 2])
    call model%save("saved.safetensors", status)
    call expect(status == wrong_shape, "another shape")
    call received("save: saved.safetensors: weight: expected the shape of the file")
    call other%save("absent/saved.safetensors", status)
    call received("save: absent/saved.safetensors: cannot be opened")
    call other%clear()
    call model%load("model.safetensors")
  end subroutine

  subroutine other_precision()
    call other%load("model.safetensors", status, kind=2)
    call expect(status == wrong_argument, "an unknown kind")
    call received("load: model.safetensors: kind: expected that of real32 or real64, got 2")
    call other%load("model.safetensors", kind=real64)
    x8 => tape%variable(real(x%val, real64))
    y8 => other%apply(tape, x8)
    call y8%backward()
    y => model%apply(tape, x)
    call expect(all(abs(y8%val - y%val) < 1e-6), "values in float64")
    y8 => other%parameter_r8(1)
    call expect(allocated(y8%grad), "gradients in float64")
    call other%clear()
  end subroutine

  subroutine plain_tensors()
    call tensors%load("model.safetensors")
    values = tensors%real32("weight")
    w => model%parameter(1)
    call expect(all(abs(values - w%val) <= 0), "a tensor")
    call expect(all(tensors%extents("weight") == [3_int64, 2_int64]), "extents")
    call expect(all(abs(tensors%real64("half")) >= 0.5), "half precision")
    call expect(all(tensors%int64("bytes") == reshape([1_int64, 255_int64], [2, 1])), "bytes")
    values = tensors%real32("none", state)
    call received("real32: name: expected that of a tensor, got none")
    call expect(state == wrong_argument .and. size(values) == 0, "no tensor")
    call tensors%load("matrix.npy")
    call expect(all(abs(tensors%real64() - reshape([1, 2, 3, 4, 5, 6], [3, 2])) <= 0), "NumPy")
    call tensors%load("by_columns.npy")
    call expect(all(abs(tensors%real64() - reshape([1, 2, 3, 4, 5, 6], [3, 2])) <= 0), "by columns")
    call tensors%load("absent.npy", status)
    call received("load: absent.npy: cannot be opened")
    call expect(tensors%count() == 0, "none after an error")
  end subroutine
end program
