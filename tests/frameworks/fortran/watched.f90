program watched
  !! A tape whose status the program looks at: errors stop nothing, and the first is written once.
  use listening, only: expect, failures, is_void
  use pyops
  implicit none
  type(tape_type) :: tape, same
  type(graph_type) :: graph
  type(array_type), pointer :: x, e, p, y, loss, g
  type(array_type), target :: own
  character(*), parameter :: first = "gno_conv: params: expected shape (40, 1), got (50, 1)"
  integer :: step, status
  call tape%continue_on_error()
  call graph%from_edges([1, 4], [2, 1], num_src=3, status=status)
  call expect(status == wrong_index, "a graph that cannot be")
  call graph%from_edges([1, 2, 3], [2, 3, 1])
  x => tape%constant(reshape([1.0, 2.0, 3.0], [1, 3]))
  e => tape%constant(reshape([1.0, 2.0, 3.0], [1, 3]))
  p => tape%variable(spread(0.1, 1, 12*2 + 13*2)) ! two features of 12 hidden ones
  do step = 1, 3
    y => gno_conv(graph, x, e, p, hidden=13)
    loss => sum(y*y)
    call loss%backward()
    g => gradient(loss, p)
    call loss%jvp()
    call expect(is_void(y, [2, 3]) .and. is_void(loss, [1, 1]), "values of the right shape")
    call expect(is_void(g, [50, 1]) .and. all(abs(p%grad) <= 0), "gradients of the right shape")
    call expect(all(loss%tangent /= loss%tangent), "a tangent of the right shape")
  end do
  call expect(tape%status() == wrong_shape, "the status of the first error")
  call expect(tape%message() == first, "its message")
  y => matmul(p, p)
  call expect(tape%message() == first, "the first")
  call tape%reset_status()
  y => matmul(p, p)
  call expect(tape%status() == wrong_shape, "a status again")
  same = tape
  call tape%clear()
  y => exp(tape%constant([1.0, 2.0]))
  call expect(tape%status() == no_error, "a tape begun anew")
  y => reshape(y, [3, 2])
  call expect(tape%status() == wrong_shape .and. is_void(y, [3, 2]), "which also continues")
  tape = y%tape()
  call expect(tape%status() == wrong_shape, "the tape of a node")
  call tape%clear()
  call tape%clear(after=own)
  call expect(tape%status() == wrong_argument, "and after it is cleared")
  call tape%clear()
  x => same%constant([1.0])
  y => reshape(x, [2, 2])
  call expect(same%status() == wrong_shape, "and copies")
  call same%clear()
  call graph%clear()
  if (failures > 0) error stop 1
end program
