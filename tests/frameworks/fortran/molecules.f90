module molecules_test
  !! DimeNet's energy of some atoms: forces, and the gradient of a loss of forces.
  !! One program: all tests differentiate the same few operators on the same edges.
  use iso_fortran_env, only: real32, real64
  use listening, only: expect
  use pyops
  implicit none
  private
  public :: run
  integer, parameter :: atoms = 6, edges = atoms*(atoms - 1)
  integer, parameter :: degrees = 4, radial = 3, channels = 5, middle = 2
  integer, parameter :: rows = degrees*radial + channels
  integer :: src(edges), dst(edges)

  type :: matrix
    real(real64), allocatable :: at(:, :)
  end type

contains

  function energy_of(graph, x, messages, weights) result(energy)
    type(graph_type), intent(in) :: graph
    type(array_type_r8), pointer, intent(in) :: x, messages, weights
    type(array_type_r8), pointer :: energy, vectors, distances, frequencies, rbf, sbf, y
    type(tape_type) :: tape
    vectors => gather(x, src) - gather(x, dst)
    distances => sqrt(sum(vectors*vectors, dim=1))/3.0_real64
    tape = x%tape()
    frequencies => tape%constant([3.0_real64, 6.0_real64, 9.0_real64])
    call dimenet_basis( &
      distances, frequencies, rbf, sbf, num_spherical=degrees, num_radial=radial)
    y => dimenet_aggregate(graph, vectors, sbf, messages, weights, num_spherical=degrees)
    energy => sum(tanh(y)) + sum(tanh(rbf))
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
    call bases()
    call partials(graph)
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

  subroutine bases()
    !! Both at once, by their formulas, and the node that the derivatives of each come from.
    type(tape_type) :: tape
    type(array_type), pointer :: x4, w4, rbf4, sbf4
    type(array_type_r8), pointer :: x, w, rbf, sbf
    real(real64), parameter :: d(4) = [0.1_real64, 0.35_real64, 0.8_real64, 1.2_real64]
    real(real64), parameter :: pi = acos(-1.0_real64), z = 4.493409457909064_real64
    real(real64) :: u(4), t(4), r(6, 4), first(6, 4), second(4)
    integer :: n
    u = merge(1/d - 28*d**5 + 48*d**6 - 21*d**7, 0.0_real64, d < 1)
    t = z*d
    do n = 1, 6
      r(n, :) = u*sin(n*pi*d)
      first(n, :) = sqrt(2.0_real64)*r(n, :)/d
    end do
    second = u*sqrt(2.0_real64)*z/abs(sin(z))*(sin(t)/t - cos(t))/t
    x => tape%variable(d)
    w => tape%variable(pi*[(n, n=1, 6)])
    call dimenet_basis(x, w, rbf, sbf)
    call expect(all(shape(sbf%val) == [42, 4]), "42 columns unless others are asked for")
    call expect(all(abs(rbf%val - r) <= 1e-13_real64*maxval(r)), "rbf")
    call expect(all(abs(sbf%val(:6, :) - first) <= 1e-13_real64*maxval(first)), "sbf, degree 0")
    call expect(all(abs(sbf%val(7, :) - second) <= 1e-13_real64*maxval(second)), "sbf, degree 1")
    x4 => tape%variable(real(d, real32))
    w4 => tape%variable(real(pi*[1, 2], real32))
    call dimenet_basis(x4, w4, rbf4, sbf4, num_spherical=2, num_radial=2)
    call expect(all(shape(sbf4%val) == [4, 4]), "2 degrees of 2 zeros")
    call expect(all(abs(rbf4%val - r(:2, :)) <= 1e-5_real64), "rbf, real32")
    call expect(all(abs(sbf4%val(:2, :) - first(:2, :)) <= 1e-4_real64), "sbf, real32")
    call expect(all(abs(sbf4%val(3, :) - second) <= 1e-5_real64*maxval(second)), "degree 1, real32")
    call dimenet_basis(x, w, rbf, sbf, num_spherical=2, exponent=3)
    sbf => spherical_basis(x, num_spherical=2, exponent=3) - sbf
    rbf => radial_basis(x, w, exponent=3) - rbf
    call expect(.not. (any(abs(sbf%val) > 0) .or. any(abs(rbf%val) > 0)), "an exponent of both")
    call expect(tape%status() == no_error, "no error of bases")
    call tape%clear()
  end subroutine

  function value_of(name, graph, x) result(y)
    character(*), intent(in) :: name
    type(graph_type), intent(in) :: graph
    type(operand_r8), intent(in) :: x(:)
    type(array_type_r8), pointer :: y
    select case (name)
    case ("aggregate")
      y => dimenet_aggregate( &
        graph, x(1)%node, x(2)%node, x(3)%node, x(4)%node, num_spherical=degrees)
    case ("radial")
      y => radial_basis(x(1)%node, x(2)%node, exponent=4)
    case ("spherical")
      y => spherical_basis(x(1)%node, num_spherical=degrees, num_radial=radial)
    case default
      y => spherical_harmonics(x(1)%node, max_degree=degrees - 1)
    end select
  end function

  function partial_of(name, number, y, upstream) result(g)
    character(*), intent(in) :: name
    integer, intent(in) :: number
    type(array_type_r8), intent(in), target :: y, upstream
    type(array_type_r8), pointer :: g
    select case (name//achar(iachar("0") + number))
    case ("aggregate1")
      g => get_partial_dimenet_aggregate_vectors(y, upstream)
    case ("aggregate2")
      g => get_partial_dimenet_aggregate_radial(y, upstream)
    case ("aggregate3")
      g => get_partial_dimenet_aggregate_embedding(y, upstream)
    case ("aggregate4")
      g => get_partial_dimenet_aggregate_weights(y, upstream)
    case ("radial1")
      g => get_partial_radial_basis_distances(y, upstream)
    case ("radial2")
      g => get_partial_radial_basis_frequencies(y, upstream)
    case ("spherical1")
      g => get_partial_spherical_basis_distances(y, upstream)
    case default
      g => get_partial_spherical_harmonics_vectors(y, upstream)
    end select
  end function

  subroutine partials(graph)
    !! The gradient by each operand as a node that can be differentiated again.
    type(graph_type), intent(in) :: graph
    call check_partials("aggregate", graph, [3, degrees*radial, channels, middle], &
                        [edges, edges, edges, rows])
    call check_partials("radial", graph, [edges, radial], [1, 1])
    call check_partials("spherical", graph, [edges], [1])
    call check_partials("harmonics", graph, [3], [edges])
  end subroutine

  subroutine check_partials(name, graph, heights, widths)
    !! Of an operator whose operands have these shapes.
    character(*), intent(in) :: name
    type(graph_type), intent(in) :: graph
    integer, intent(in) :: heights(:), widths(:)
    type(tape_type) :: tape
    type(operand_r8) :: x(size(heights) + 1)
    type(array_type_r8), pointer :: y, node, s
    type(matrix) :: h(size(x))
    real(real64) :: slope
    integer :: i, n
    n = size(heights)
    do i = 1, n
      x(i)%node => tape%variable(drawn(heights(i), widths(i)))
    end do
    y => value_of(name, graph, x)
    x(n + 1)%node => tape%variable(drawn(size(y%val, 1), size(y%val, 2)) - 0.5_real64)
    do i = 1, n + 1
      h(i)%at = drawn(size(x(i)%node%val, 1), size(x(i)%node%val, 2)) - 0.5_real64
    end do
    do i = 1, n
      call tape%zero_grad()
      call y%backward(x(n + 1)%node%val)
      node => partial_of(name, i, y, x(n + 1)%node)
      associate (gradient => x(i)%node%grad)
        call expect(maxval(abs(node%val - gradient)) <= 1e-12*maxval(abs(gradient)), name)
      end associate
      slope = sum(node%val*h(i)%at)
      call expect(near(slope, difference(name, graph, x, h, i, .false.)), name//" by differences")
      s => sum(node*node)
      call tape%zero_grad()
      call s%backward()
      slope = along(x, h)
      call expect(near(slope, difference(name, graph, x, h, i, .true.)), name//", differentiated")
    end do
    call expect(tape%status() == no_error, name//": no error")
    call tape%clear()
  end subroutine

  function difference(name, graph, x, h, number, second) result(slope)
    !! Of <upstream, y> by one operand; or along all, of the square of the gradient by that one.
    character(*), intent(in) :: name
    type(graph_type), intent(in) :: graph
    type(operand_r8), intent(in) :: x(:)
    type(matrix), intent(in) :: h(:)
    integer, intent(in) :: number
    logical, intent(in) :: second
    type(array_type_r8), pointer :: y
    type(matrix) :: before(size(x))
    real(real64), parameter :: step = 1e-5_real64
    real(real64) :: slope, ends(2)
    integer :: i, k
    do i = 1, size(x)
      before(i)%at = x(i)%node%val
    end do
    do k = 1, 2
      do i = 1, size(x)
        if (second .or. i == number) &
          x(i)%node%val = before(i)%at + merge(step, -step, k == 1)*h(i)%at
      end do
      y => value_of(name, graph, x)
      ends(k) = sum(x(size(x))%node%val*y%val)
      if (.not. second) cycle
      y => partial_of(name, number, y, x(size(x))%node)
      ends(k) = sum(y%val**2)
    end do
    do i = 1, size(x)
      x(i)%node%val = before(i)%at
    end do
    slope = (ends(1) - ends(2))/(2*step)
  end function

  real(real64) function along(x, h)
    type(operand_r8), intent(in) :: x(:)
    type(matrix), intent(in) :: h(:)
    integer :: i
    along = 0
    do i = 1, size(x)
      if (allocated(x(i)%node%grad)) along = along + sum(x(i)%node%grad*h(i)%at)
    end do
  end function

  logical function near(a, b)
    real(real64), intent(in) :: a, b
    near = abs(a - b) <= 1e-6*max(1.0_real64, abs(b))
  end function

  function drawn(height, width) result(x)
    !! Numbers between 0.1 and 0.9.
    integer, intent(in) :: height, width
    real(real64) :: x(height, width)
    call random_number(x)
    x = 0.1_real64 + 0.8_real64*x
  end function

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
end module

program molecules
  use listening, only: failures
  use molecules_test, only: run
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
