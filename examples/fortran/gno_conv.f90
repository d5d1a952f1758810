program gno_conv_example
  !! A graph neural operator from Fortran: its gradients, and a central difference beside them.
  use, intrinsic :: iso_fortran_env, only: real64
  use pyops, only: array_type_r8, graph_type, tape_type, gno_conv, sum, operator(*)
  implicit none
  integer, parameter :: nodes = 30, edges = 200, dim = 3, hidden = 8, inward = 4, outward = 5
  integer, parameter :: length = hidden*(dim + 1) + (hidden + 1)*inward*outward
  real(real64), parameter :: step = 1e-6_real64
  type(graph_type) :: graph
  type(tape_type) :: tape
  type(array_type_r8), pointer :: features, coords, params, weights, value
  real(real64) :: random(2, edges), x(inward, nodes), e(dim, edges), p(length), direction(length)
  real(real64) :: w(outward, nodes), slope, difference
  integer :: src(edges), dst(edges)

  call random_number(random)
  src = 1 + int(nodes*random(1, :))
  dst = 1 + int(nodes*random(2, :))
  call graph%from_edges(src, dst, num_src=nodes)
  call random_number(x)
  call random_number(e)
  call random_number(p)
  call random_number(w)
  call random_number(direction)

  features => tape%constant(x)
  coords => tape%constant(e)
  params => tape%variable(p)
  weights => tape%constant(w)
  value => energy()
  call value%backward()
  slope = dot_product(direction, params%grad(:, 1))

  difference = (moved(step) - moved(-step))/(2*step)
  print "(a, f0.8, a, f0.8)", &
    "gradient along a direction ", slope, ", central difference ", difference
  if (abs(slope - difference) > 1e-6*abs(slope)) error stop "they differ"
  call tape%clear()
  call graph%clear()

contains

  function energy() result(y)
    type(array_type_r8), pointer :: y
    y => sum(weights*gno_conv(graph, features, coords, params, hidden, "tanh"))
  end function

  real(real64) function moved(distance)
    !! The value with the parameters moved along the direction.
    real(real64), intent(in) :: distance
    type(array_type_r8), pointer :: y
    params%val(:, 1) = p + distance*direction
    y => energy()
    moved = y%val(1, 1)
  end function
end program
