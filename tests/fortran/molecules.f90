module molecules_test
  !! DimeNet's energy of some atoms: forces, and the gradient of a loss of forces.
  use iso_fortran_env, only: real64
  use listening, only: expect
  use pyops
  implicit none
  private
  public :: run
  integer, parameter :: atoms = 6, edges = atoms*(atoms - 1)
  integer, parameter :: degrees = 4, radial = 3, channels = 5, middle = 2
  integer, parameter :: rows = degrees*radial + channels
  integer :: src(edges), dst(edges)

contains

  function energy_of(graph, x, messages, weights) result(energy)
    type(graph_type), intent(in) :: graph
    type(array_type_r8), pointer, intent(in) :: x, messages, weights
    type(array_type_r8), pointer :: energy, vectors, distances, basis, y
    vectors => gather(x, src) - gather(x, dst)
    distances => sqrt(sum(vectors*vectors, dim=1))/3.0_real64
    basis => spherical_basis(distances, num_spherical=degrees, num_radial=radial)
    y => dimenet_aggregate(graph, vectors, basis, messages, weights, num_spherical=degrees)
    energy => sum(tanh(y))
  end function

  subroutine run()
    type(tape_type) :: tape
    type(graph_type) :: graph
    type(array_type_r8), pointer :: x, messages, weights, energy, force, target, loss
    integer :: i, j, e, seed(64) = 17
    real(real64) :: places(3, atoms), w(middle, rows), m(channels, edges), start
    call random_seed(put=seed)
    e = 0
    do i = 1, atoms
      do j = 1, atoms
        if (i == j) cycle
        e = e + 1
        src(e) = j
        dst(e) = i
      end do
    end do
    call graph%from_edges(src, dst)
    call random_number(places)
    call random_number(m)
    call random_number(w)
    x => tape%variable(2*places)
    messages => tape%variable(m - 0.5_real64)
    weights => tape%variable(w - 0.5_real64)
    call random_number(places)
    target => tape%constant(places)

    energy => energy_of(graph, x, messages, weights)
    force => -gradient(energy, x)
    call compare(graph, x, messages, weights, x, -force%val, "forces")
    call expect(maxval(abs(sum(force%val, 2))) < 1e-10, "forces add up to nothing")
    loss => mean((force - target)**2.0_real64)
    start = loss%val(1, 1)
    call loss%backward()
    call compare(graph, x, messages, weights, weights, weights%grad, "forces by weights", target)
    call compare(graph, x, messages, weights, messages, messages%grad, "by messages", target)
    call compare(graph, x, messages, weights, x, x%grad, "forces by positions", target)
    weights%val = weights%val - 1e-2_real64*weights%grad/maxval(abs(weights%grad))
    energy => energy_of(graph, x, messages, weights)
    loss => mean((gradient(energy, x) + target)**2.0_real64)
    call expect(loss%val(1, 1) < start, "a step of training on forces")
    call partials(tape, graph)
    call images(tape, graph)
    call expect(tape%status() == no_error, "no error")
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine compare(graph, x, messages, weights, leaf, slope, what, target)
    !! A slope by a leaf, of the energy or of the loss of forces, against central differences.
    type(graph_type), intent(in) :: graph
    type(array_type_r8), pointer, intent(in) :: x, messages, weights, leaf
    real(real64), intent(in) :: slope(:, :)
    character(*), intent(in) :: what
    type(array_type_r8), pointer, intent(in), optional :: target
    type(array_type_r8), pointer :: energy, value
    real(real64) :: direction(size(slope, 1), size(slope, 2)), ends(2), step
    real(real64), allocatable :: before(:, :)
    integer :: i
    call random_number(direction)
    direction = direction - 0.5_real64
    step = 1e-5_real64
    before = leaf%val
    do i = 1, 2
      leaf%val = before + merge(step, -step, i == 1)*direction
      energy => energy_of(graph, x, messages, weights)
      value => energy
      if (present(target)) value => mean((gradient(energy, x) + target)**2.0_real64)
      ends(i) = value%val(1, 1)
    end do
    leaf%val = before
    ends(1) = (ends(1) - ends(2))/(2*step)
    ends(2) = sum(slope*direction)
    call expect(abs(ends(1) - ends(2)) <= 1e-6*max(1.0_real64, abs(ends(1))), what)
  end subroutine

  subroutine partials(tape, graph)
    !! The gradient by each operand of the aggregation as a node that can be differentiated again.
    type(tape_type), intent(inout), target :: tape
    type(graph_type), intent(in) :: graph
    type(array_type_r8), pointer :: v, r, x, w, y, upstream
    real(real64) :: vectors(3, edges), basis(degrees*radial, edges), m(channels, edges)
    real(real64) :: weights(middle, rows), u(channels, edges)
    call random_number(vectors)
    call random_number(basis)
    call random_number(m)
    call random_number(weights)
    call random_number(u)
    v => tape%variable(vectors - 0.5_real64)
    r => tape%variable(basis)
    x => tape%variable(m)
    w => tape%variable(weights)
    upstream => tape%variable(u)
    y => dimenet_aggregate(graph, v, r, x, w, num_spherical=degrees)
    call y%backward(u)
    vectors = v%grad
    basis = r%grad
    m = x%grad
    weights = w%grad
    call twin(get_partial_dimenet_aggregate_vectors(y, upstream), vectors, upstream, "vectors")
    call twin(get_partial_dimenet_aggregate_radial(y, upstream), basis, upstream, "radial")
    call twin(get_partial_dimenet_aggregate_embedding(y, upstream), m, upstream, "embedding")
    call twin(get_partial_dimenet_aggregate_weights(y, upstream), weights, upstream, "weights")
  end subroutine

  subroutine images(tape, graph)
    !! Where each pair of atoms has two edges, to leave out the reverse is to leave out the node.
    type(tape_type), intent(inout), target :: tape
    type(graph_type), intent(in) :: graph
    type(graph_type) :: paired
    type(array_type_r8), pointer :: v, r, x, w, y, z
    real(real64) :: vectors(3, edges), basis(degrees*radial, edges), m(channels, edges)
    real(real64) :: weights(middle, rows), u(channels, edges), expected(channels, edges)
    integer :: reverse(edges), e, f
    do e = 1, edges
      do f = 1, edges
        if (src(f) == dst(e) .and. dst(f) == src(e)) reverse(e) = f
      end do
    end do
    call paired%from_edges(src, dst, reverse=reverse)
    call random_number(vectors)
    call random_number(basis)
    call random_number(m)
    call random_number(weights)
    call random_number(u)
    v => tape%variable(vectors - 0.5_real64)
    r => tape%variable(basis)
    x => tape%variable(m)
    w => tape%variable(weights)
    y => dimenet_aggregate(graph, v, r, x, w, num_spherical=degrees)
    z => dimenet_aggregate(paired, v, r, x, w, num_spherical=degrees, exclude="image")
    call expect(maxval(abs(y%val - z%val)) <= 1e-12*maxval(abs(y%val)), "images")
    call y%backward(u)
    vectors = v%grad
    basis = r%grad
    call v%zero_grad()
    call r%zero_grad()
    call z%backward(u)
    call expect(maxval(abs(v%grad - vectors)) <= 1e-12*maxval(abs(vectors)), "images by vectors")
    call expect(maxval(abs(r%grad - basis)) <= 1e-12*maxval(abs(basis)), "images by radial")
    z => edge_to_edge(paired, x, exclude="image")
    do e = 1, edges
      expected(:, e) = -m(:, reverse(e))
      do f = 1, edges
        if (dst(f) == src(e)) expected(:, e) = expected(:, e) + m(:, f)
      end do
    end do
    call expect(maxval(abs(z%val - expected)) <= 1e-12_real64, "messages but for the reverse")
    call paired%clear()
  end subroutine

  subroutine twin(node, slope, upstream, what)
    type(array_type_r8), pointer, intent(in) :: node, upstream
    real(real64), intent(in) :: slope(:, :)
    character(*), intent(in) :: what
    type(array_type_r8), pointer :: s
    call expect(maxval(abs(node%val - slope)) <= 1e-12*maxval(abs(slope)), what)
    s => sum(node*node)
    call upstream%zero_grad()
    call backward(s)
    call expect(allocated(upstream%grad), what//" can be differentiated")
  end subroutine
end module

program molecules
  use listening, only: failures
  use molecules_test, only: run
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
