program model_example
  !! Runs a network that pyops.models.save has written, on a graph and a matrix of node features,
  !! differentiates it, takes a step of Adam and writes it again: model FILE.
  use pyops, only: adam_type, array_type, graph_type, tape_type, gradient, mean, sum, operator(**)
  use pyops_models, only: model_type
  implicit none
  integer, parameter :: nodes = 50, edges = 300, features = 8
  type(model_type) :: model
  type(graph_type) :: graph
  type(tape_type) :: tape
  type(adam_type) :: adam
  type(array_type), pointer :: x, y, slope, loss
  real :: ends(2, edges), values(features, nodes)
  character(200) :: file

  call get_command_argument(1, file)
  call model%load(trim(file))
  call random_number(ends)
  call random_number(values)
  call graph%from_edges(1 + int(nodes*ends(1, :)), 1 + int(nodes*ends(2, :)), num_src=nodes)

  x => tape%variable(values)
  y => model%apply(tape, graph, x)
  slope => gradient(sum(y), x) ! a node, which can be differentiated again
  loss => mean(slope**2.0)
  call loss%backward()
  adam%rate = 0.01d0
  call adam%add(model%parameters())
  call adam%step()
  print "(a, i0, a, i0, a, es9.2)", "output of ", size(y%val, 1), " features and ", &
    size(y%val, 2), " nodes, loss ", loss%val
  call model%save("trained.safetensors")

  call tape%clear()
  call model%clear()
  call graph%clear()
end program
