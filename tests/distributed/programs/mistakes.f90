module listener
  use, intrinsic :: iso_fortran_env, only: error_unit
  use pyops
  implicit none
contains
  subroutine listen(status, message)
    integer(kind(no_error)), intent(in) :: status
    character(*), intent(in) :: message
    write (error_unit, "(a, i0, 2a)") "heard ", status, " ", message
  end subroutine
end module

program mistakes
  !! Errors of one rank, by name: all ranks stop, or go on together if the error is handled.
  use, intrinsic :: iso_fortran_env, only: int64
  use listener, only: listen
  use pyops
  use pyops_ranks
  implicit none
  type(communicator_type) :: comm
  type(distributed_graph_type) :: graph
  type(tape_type) :: tape
  type(array_type), pointer :: x, e, w, y, loss
  character(20) :: name
  integer :: first, last, one

  call get_command_argument(1, name)
  call comm%start()
  one = merge(1, 0, comm%rank == 1)
  first = 4*comm%rank + 1
  last = first + 3
  call graph%from_edges(comm, [1, 2, first], [first, last, last], owned=[first, last])
  x => tape%variable(reshape([0.1, 0.2, 0.3, 0.4], [1, 4]))
  e => tape%constant(reshape([1.0, 2.0, 3.0], [1, 3]))
  w => tape%variable([0.1, 0.2, 0.3, 0.4])
  select case (name)
  case ("none")
    y => gno_conv(graph, x, e, w, hidden=1)
    call comm%finish()
    stop
  case ("columns")
    y => exchange(graph, tape%constant(reshape([0.1, 0.2, 0.3, 0.4], [1 + one, 4/(1 + one)])))
  case ("rows")
    y => exchange(graph, tape%constant(reshape(spread(0.1, 1, 4*(2 - one)), [2 - one, 4])))
  case ("owner")
    call graph%from_edges(comm, [1, 2], [first + 4*one*(comm%size - 1), last], owned=[first, last])
  case ("source")
    call graph%from_edges(comm, [1, 2 - 2*one], [first, last], owned=[first, last])
  case ("lengths")
    call graph%from_edges(comm, [1, 2], spread(first, 1, 2 - one), owned=[first, last])
  case ("ranges")
    call graph%from_edges(comm, [1], [last], owned=[first + one, last])
  case ("reverse")
    call graph%from_edges(comm, [1], [last], owned=[first, last], reverse=spread(0, 1, 1 + one))
  case ("other reverse")
    call graph%from_edges(comm, [last], [last], owned=[first, last], reverse=[1])
    y => edge_to_edge(graph, tape%constant(reshape([0.1], [1, 1])), exclude="image")
  case ("bipartite")
    call graph%from_edges(comm, [1], [last], owned=[first, last], owned_src=[first, last])
    y => edge_to_edge(graph, tape%constant(reshape([0.1], [1, 1])))
  case ("values")
    w%val(1, 1) = w%val(1, 1) + one
    y => replicated(comm, w)
  case ("gradient")
    loss => sum(x*sum_over_ranks(comm, sum(x)))*real(1 + one)
    call loss%backward()
  case ("constant")
    if (one == 1) x => tape%constant(x%val)
    y => exchange(graph, x)
  case ("order")
    if (one == 1) y => accumulate(graph, tape%constant(reshape(spread(0.1, 1, 6), [1, 6])))
    y => exchange(graph, x)
  case ("operator")
    if (one == 1) e => tape%constant([1.0])
    y => gno_conv(graph, x, e, w, hidden=1)
    y => sum_over_ranks(comm, y)
  case ("failed")
    if (one == 1) call tape%continue_on_error()
    if (one == 1) x => matmul(x, x)
    y => exchange(graph, x)
    if (one == 1) stop
  case ("cleared")
    call graph%clear()
    y => exchange(graph, x)
  case ("finished")
    call comm%finish()
    y => replicated(comm, w)
  case ("started")
    call comm%start()
  case ("stop")
    if (one == 1) stop
    y => exchange(graph, x)
  case ("error stop")
    if (one == 1) error stop "out of luck"
    y => exchange(graph, x)
  case ("finish")
    if (one == 1) call comm%finish()
    y => exchange(graph, x)
  case ("abort")
    if (one == 1) call abort()
    y => exchange(graph, x)
  case ("handled")
    call go_on()
    stop
  end select
  print *, "not reached"

contains

  subroutine go_on()
    !! With a handler all ranks hear of the error once, and the program goes on.
    integer :: status
    call set_error_handler(listen)
    y => exchange(graph, tape%constant(reshape([0.1, 0.2, 0.3, 0.4], [1 + one, 4/(1 + one)])))
    if (all(y%val == y%val)) error stop "a failed node has values"
    loss => sum_over_ranks(comm, sum(y))
    call loss%backward()
    call graph%from_edges(comm, [1], [last], owned=[first + one, last], status=status)
    if (status /= wrong_argument) error stop "another status"
    if (.not. graph%is_filled()) error stop "the graph has changed"
    call tape%reset_status()
    e => tape%constant(reshape(spread(1.0, 1, 3 - one), [1, 3 - one]))
    y => gno_conv(graph, x, e, w, hidden=1)
    if (all(y%val == y%val)) error stop "a failed operator has values"
    loss => sum(y)
    call loss%backward()
    e => tape%constant(reshape([1.0, 2.0, 3.0], [1, 3]))
    loss => sum_over_ranks(comm, sum(gno_conv(graph, x, e, w, hidden=1)))
    call loss%backward()
    if (any(w%grad /= w%grad)) error stop "the gradient is not finite"
    call graph%clear()
    call comm%finish()
  end subroutine
end program
