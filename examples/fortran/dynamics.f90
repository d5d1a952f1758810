program dynamics
  !! Molecular dynamics of a crystal by a SchNet that PyTorch trained, with velocity Verlet:
  !! dynamics MODEL START [STEPS]. Prints time, temperature and the drift of the total energy.
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use pyops, only: array_type_r8, graph_type, tape_type, gradient, radius_graph
  use pyops_models, only: model_type, tensors_type
  implicit none
  real(real64), parameter :: boltzmann = 8.617333262d-5 ! eV / kelvin
  real(real64), parameter :: femtosecond = 0.09822694788464063d0 ! angstrom sqrt(dalton / eV)
  real(real64), parameter :: dt = 2*femtosecond
  type(model_type) :: model
  type(tensors_type) :: start
  type(tape_type) :: tape
  type(graph_type) :: graph
  real(real64), allocatable :: x(:, :), v(:, :), f(:, :), mass(:, :), cell(:, :)
  integer(int64), allocatable :: z(:, :)
  real(real64) :: cutoff, potential, kinetic, first
  character(500) :: text
  integer :: step, steps, i

  call get_command_argument(1, text)
  call model%load(trim(text))
  call model%get("cutoff", cutoff)
  call get_command_argument(2, text)
  call start%load(trim(text))
  x = start%real64("positions") ! angstrom; a column is an atom
  v = start%real64("velocities")
  mass = start%real64("masses") ! dalton
  cell = start%real64("cell")
  z = start%int64("numbers")
  steps = 500
  call get_command_argument(3, text)
  if (text /= "") read (text, *) steps
  call model%set("z", z(:, 1))

  f = v
  call find_forces(x, potential, f)
  do step = 0, steps
    kinetic = sum(spread(mass(:, 1), 1, 3)*v**2)/2
    if (step == 0) first = potential + kinetic
    if (mod(step, 10) == 0) print "(f8.1, f10.1, 2f16.9)", step*dt/femtosecond, &
      2*kinetic/(3*size(x, 2)*boltzmann), potential, potential + kinetic - first
    call accelerate(dt/2)
    x = x + dt*v
    call find_forces(x, potential, f)
    call accelerate(dt/2)
  end do
  call model%clear()
  call graph%clear()
  deallocate (x, v, f, mass, cell, z)

contains

  subroutine accelerate(time)
    real(real64), intent(in) :: time
    do i = 1, size(v, 2)
      v(:, i) = v(:, i) + time/mass(i, 1)*f(:, i)
    end do
  end subroutine

  subroutine find_forces(x, energy, f)
    !! Energy and forces, by the neighbours within the cutoff, periodic images included.
    real(real64), intent(in) :: x(:, :)
    real(real64), intent(out) :: energy, f(:, :)
    type(array_type_r8), pointer :: positions, y, slope
    real(real64), allocatable :: offsets(:, :)
    call radius_graph(graph, x, cutoff, cell, translations=offsets)
    positions => tape%variable(x)
    call model%set("graph", graph)
    call model%set("pos", positions)
    call model%set("offsets", tape%constant(offsets))
    y => model%apply_r8(tape)
    slope => gradient(y, positions)
    energy = y%val(1, 1)
    f = -slope%val
    call tape%clear()
  end subroutine
end program
