program nodes
  !! What the tape costs: gno_conv forward and all gradients through array_type, and by calling the
  !! kernels, in turn on one thread. Prints seconds of both for each round, then bytes of memory.
  use iso_c_binding, only: c_int32_t, c_int64_t
  use iso_fortran_env, only: int64, real32, real64
  use pyops, only: array_type, graph_type, tape_type, gno_conv, set_num_threads
  use pyops_gno_conv_node, only: gno_conv_forward_r4, gno_conv_backward_r4
  implicit none
  integer, parameter :: points = 2000, degree = 20, dim = 3, hidden = 64, width = 32
  integer, parameter :: edges = points*degree, rounds = 15
  integer(c_int64_t), parameter :: sizes(8) = &
    [points, points, edges, edges, dim, hidden, width, width]
  integer, parameter :: length = hidden*(dim + 1) + (hidden + 1)*width**2
  type(tape_type) :: tape
  type(graph_type) :: graph
  type(array_type), pointer :: x, e, p, y
  real(real32), allocatable, target :: features(:, :), coords(:, :), params(:), value(:, :)
  real(real32), allocatable :: gy(:, :), gx(:, :), ge(:, :), gp(:)
  real(real64), allocatable :: ends(:, :)
  integer(int64) :: before
  integer :: round
  allocate (features(width, points), coords(dim, edges), params(length), value(width, points), &
            gy(width, points), gx(width, points), ge(dim, edges), gp(length), ends(edges, 2))
  call random_number(ends)
  call random_number(features)
  call random_number(coords)
  call random_number(params)
  call random_number(gy)
  params = (params - 0.5)/sqrt(real(width*degree))
  call set_num_threads(1)
  call graph%from_edges(1 + int(points*ends(:, 1)), 1 + int(points*ends(:, 2)), num_src=points)
  deallocate (ends)
  x => tape%variable(features)
  e => tape%variable(coords)
  p => tape%variable(params)
  before = peak()
  call by_kernels()
  call by_nodes()
  if (maxval(abs(p%grad(:, 1) - gp)) > 0) error stop "gradients differ"
  do round = 1, rounds
    print *, seconds_of(by_nodes), seconds_of(by_kernels)
  end do
  print *, peak() - before, 4_int64*size(value) + 4_int64*size(gx) + 4*size(ge) + 4*size(gp)
  call tape%clear()
  call graph%clear()

contains

  subroutine by_nodes()
    call tape%zero_grad()
    y => gno_conv(graph, x, e, p, hidden=hidden)
    call y%backward(gy)
    call tape%clear(after=p)
  end subroutine

  subroutine by_kernels()
    integer(c_int32_t), parameter :: relu = 1, team = 1, overwrite = 0, all = 7
    integer(c_int32_t) :: status
    associate (g => graph%rows)
      call gno_conv_forward_r4( &
        sizes(1), sizes(2), sizes(3), sizes(4), sizes(5), sizes(6), sizes(7), sizes(8), relu, &
        team, overwrite, g%in_offsets, g%in_nodes, g%in_edges, features, coords, params, value, &
        status)
      call gno_conv_backward_r4( &
        sizes(1), sizes(2), sizes(3), sizes(4), sizes(5), sizes(6), sizes(7), sizes(8), relu, &
        team, overwrite, all, 0_c_int32_t, g%in_offsets, g%in_nodes, g%in_edges, &
        g%id_offsets, g%id_entries, features, coords, params, gy, gx, ge, gp, status)
    end associate
    if (status /= 0) error stop "kernels failed"
  end subroutine

  real(real64) function seconds_of(work)
    interface
      subroutine work()
        implicit none
      end subroutine
    end interface
    integer(int64) :: start, stop, rate
    call system_clock(start, rate)
    call work()
    call system_clock(stop)
    seconds_of = real(stop - start, real64)/real(rate, real64)
  end function

  integer(int64) function peak()
    !! Of resident memory.
    character(200) :: line
    integer :: unit, status
    open (newunit=unit, file="/proc/self/status", action="read")
    do
      read (unit, "(a)", iostat=status) line
      if (status /= 0 .or. line(:6) == "VmHWM:") exit
    end do
    close (unit)
    read (line(7:index(line, "kB") - 1), *) peak
    peak = 1024*peak
  end function
end program
