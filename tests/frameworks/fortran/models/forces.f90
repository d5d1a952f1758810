program forces
  !! Energies and forces of molecules by a DimeNetPlusPlus that PyTorch trained, over the graph of
  !! `radius_graph`, and the gradients by its parameters of a loss on forces: forces MODEL INPUTS.
  use iso_fortran_env, only: int64, real64
  use pyops
  use pyops_models
  implicit none
  type(model_type) :: model
  type(tensors_type) :: given
  type(tape_type) :: tape
  type(graph_type) :: graph
  type(array_type_r8), pointer :: positions, energy, force, loss, parameter
  integer(int64), allocatable :: z(:, :), batch(:, :)
  real(real64) :: cutoff
  character(500) :: path
  integer :: i
  call get_command_argument(1, path)
  call model%load(trim(path))
  call get_command_argument(2, path)
  call given%load(trim(path))
  z = given%int64("z")
  batch = given%int64("batch")
  positions => tape%variable(given%real64("pos"))
  call model%get("cutoff", cutoff)
  call radius_graph(graph, positions%val, cutoff, batch=batch(:, 1) + 1)
  call model%set("graph", graph)
  call model%set("z", z(:, 1))
  call model%set("batch", batch(:, 1))
  call model%set("pos", positions)
  energy => model%apply_r8(tape)
  call compare("energy", energy%val)
  force => -gradient(energy, positions)
  call compare("force", force%val)
  loss => sum(force*force)
  call loss%backward()
  do i = 1, model%count()
    parameter => model%parameter_r8(i)
    if (allocated(parameter%grad)) call compare("grad:"//model%name(i), parameter%grad)
  end do
  call tape%clear()
  call model%clear()
  call graph%clear()
  deallocate (z, batch)

contains

  subroutine compare(name, computed)
    character(*), intent(in) :: name
    real(real64), intent(in) :: computed(:, :)
    real(real64), allocatable :: expected(:, :)
    expected = given%real64(name)
    if (any(shape(computed) /= shape(expected))) error stop "another shape"
    print "(a,1x,es9.2)", name, maxval(abs(computed - expected))/max(1.0_real64, &
                                                                     maxval(abs(expected)))
  end subroutine
end program
