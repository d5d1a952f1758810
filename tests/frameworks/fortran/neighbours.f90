module neighbours_test
  !! Points within a cutoff, against all pairs of all images.
  use iso_fortran_env, only: int32, int64, real32, real64
  use listening, only: expect, listen, start_listening, last_status, last_message
  use pyops
  implicit none
  private
  public :: run
  integer, parameter :: points = 30
  real(real64), parameter :: cutoff = 1.1_real64

contains

  subroutine run()
    real(real64) :: x(3, points), cell(3, 3)
    integer :: seed(64) = 5
    logical :: slab(3) = [.true., .false., .true.]
    call random_seed(put=seed)
    call random_number(x)
    x = 4*x - 1
    cell = reshape([2.5_real64, 0.0_real64, 0.0_real64, 0.7_real64, 2.0_real64, 0.0_real64, &
                    0.0_real64, 0.3_real64, 3.0_real64], [3, 3])
    call compare(x, "open")
    call compare(x, "periodic", cell, [.true., .true., .true.])
    call compare(x, "slab", cell, slab)
    call compare(x(:2, :), "plane", cell(:2, :2), slab(:2))
    call compare(x(:1, :), "line")
    call nearest(x, cell)
    call batches(x)
    call forces(x, cell)
    call start_listening()
    call errors(x, cell)
  end subroutine

  subroutine compare(x, name, cell, periodic)
    real(real64), intent(in) :: x(:, :)
    character(*), intent(in) :: name
    real(real64), intent(in), optional :: cell(:, :)
    logical, intent(in), optional :: periodic(:)
    type(graph_type) :: graph
    real(real64), allocatable :: moves(:, :)
    real(real64) :: vector(size(x, 1)), total(size(x, 1), points), expected(size(x, 1), points)
    integer :: i, j, a, b, c, most(3), degree(points), e, back
    logical :: right
    most = 0
    if (present(periodic)) most(:size(x, 1)) = merge(4, 0, periodic)
    degree = 0
    expected = 0
    do i = 1, points
      do j = 1, points
        do a = -most(1), most(1)
          do b = -most(2), most(2)
            do c = -most(3), most(3)
              if (i == j .and. a == 0 .and. b == 0 .and. c == 0) cycle
              vector = x(:, j) - x(:, i)
              if (a /= 0) vector = vector + a*cell(:, 1)
              if (b /= 0) vector = vector + b*cell(:, 2)
              if (c /= 0) vector = vector + c*cell(:, 3)
              if (sum(vector**2) >= cutoff**2) cycle
              degree(i) = degree(i) + 1
              expected(:, i) = expected(:, i) + vector
            end do
          end do
        end do
      end do
    end do
    if (present(cell)) then
      call radius_graph(graph, x, cutoff, cell, periodic, translations=moves)
    else
      call radius_graph(graph, x, cutoff, translations=moves)
    end if
    total = 0
    right = .true.
    associate (rows => graph%rows)
      call expect(all(rows%in_offsets(2:) - rows%in_offsets(:points) == degree), name//": degrees")
      call expect(size(moves, 2) == sum(degree) .and. rows%num_src == points, name//": sizes")
      do i = 1, points
        do e = int(rows%in_offsets(i)), int(rows%in_offsets(i + 1)) - 1
          j = rows%in_nodes(e)
          total(:, i) = total(:, i) + x(:, j) - x(:, i) + moves(:, e)
          back = int(rows%reverse(e))
          right = right .and. rows%in_nodes(back) == i .and. rows%reverse(back) == e &
                  .and. all(abs(moves(:, back) + moves(:, e)) <= 0)
        end do
      end do
    end associate
    call expect(maxval(abs(total - expected)) < 1e-12, name//": vectors")
    call expect(right, name//": reverses")
    call graph%clear()
  end subroutine

  subroutine nearest(x, cell)
    !! The nearest in the order of distances, and no other closer than the last.
    real(real64), intent(in) :: x(:, :), cell(:, :)
    type(graph_type) :: graph, within
    real(real64), allocatable :: moves(:, :)
    real(real64) :: lengths(7)
    integer :: i, e, closer
    logical :: right
    call knn_graph(graph, x, 7, cell, translations=moves)
    right = .true.
    do i = 1, points
      do e = 1, 7
        associate (j => graph%rows%in_nodes(7*(i - 1) + e))
          lengths(e) = norm2(x(:, j) - x(:, i) + moves(:, 7*(i - 1) + e))
        end associate
      end do
      right = right .and. all(lengths(2:) >= lengths(:6))
      call radius_graph(within, x, lengths(7)*(1 - 1e-9_real64), cell)
      closer = int(within%rows%in_offsets(i + 1) - within%rows%in_offsets(i))
      right = right .and. closer == 6
    end do
    call expect(right, "nearest")
    call knn_graph(graph, x(:, :4), 9_int64)
    call expect(graph%rows%num_entries == 12, "fewer than the nearest")
    call graph%clear()
    call within%clear()
  end subroutine

  subroutine batches(x)
    !! Kinds of the arguments in all that are optional.
    real(real64), intent(in) :: x(:, :)
    type(graph_type) :: whole, first, second
    integer(int64) :: wide
    integer(int32) :: status
    integer :: i
    integer, parameter :: half = points/2
    call radius_graph(first, x(:, :half), cutoff)
    call radius_graph(second, x(:, half + 1:), cutoff, status=wide)
    call radius_graph(whole, x, cutoff, batch=[(1, i=1, half), (3, i=1, half)], status=status)
    call expect(wide == no_error .and. status == no_error, "batch: status")
    call expect(whole%rows%num_entries == first%rows%num_entries + second%rows%num_entries &
                .and. all(int(whole%rows%in_nodes) == &
                          [int(first%rows%in_nodes), int(second%rows%in_nodes) + half]), "batch")
    call radius_graph(first, real(x, real32), real(cutoff, real32))
    call expect(abs(first%rows%num_entries - whole%rows%num_entries) > 0, "real32")
    call radius_graph(first, x(:, :0), cutoff, status=status)
    call expect(status == no_error .and. first%rows%num_entries == 0, "no points")
    call first%clear()
    call second%clear()
    call whole%clear()
  end subroutine

  subroutine forces(x, cell)
    !! The sum of squared lengths and its gradient, with edges as a constant.
    real(real64), intent(in) :: x(:, :), cell(:, :)
    type(graph_type) :: graph
    type(tape_type) :: tape
    type(array_type_r8), pointer :: places, vectors, energy
    real(real64), allocatable :: moves(:, :)
    real(real64) :: expected(3, points)
    integer :: i, e
    call radius_graph(graph, x, cutoff, cell, translations=moves)
    places => tape%variable(x)
    vectors => edge_difference(graph, places, places) + tape%constant(moves)
    energy => sum(vectors*vectors)
    call energy%backward()
    expected = 0
    associate (rows => graph%rows)
      do i = 1, points
        do e = int(rows%in_offsets(i)), int(rows%in_offsets(i + 1)) - 1
          expected(:, i) = expected(:, i) - 4*(x(:, rows%in_nodes(e)) - x(:, i) + moves(:, e))
        end do
      end do
    end associate
    call expect(maxval(abs(places%grad - expected)) < 1e-10, "forces")
    call tape%clear()
    call graph%clear()
  end subroutine

  subroutine errors(x, cell)
    real(real64), intent(in) :: x(:, :), cell(:, :)
    type(graph_type) :: graph
    integer :: status
    real(real64) :: tall(4, 2), wrong(3, 3)
    tall = 0
    wrong = 0
    call radius_graph(graph, tall, cutoff)
    call received("positions: expected one to three rows")
    call radius_graph(graph, x, -cutoff)
    call received("cutoff: expected a positive number, 1e-30 to 1e30")
    call knn_graph(graph, x, 0)
    call expect(last_message == &
                "knn_graph: nearest: expected at least 1, at most 2^31 - 2", "no nearest")
    call radius_graph(graph, x, cutoff, cell(:2, :2))
    call received("cell: expected as many rows and columns as positions has rows")
    call radius_graph(graph, x, cutoff, periodic=[.true., .true., .true.])
    call received("periodic: expected an element for each vector of a cell")
    call radius_graph(graph, x, cutoff, batch=[1, 2])
    call received("batch: expected an element for each column of positions")
    call radius_graph(graph, x(:, :2), cutoff, batch=[1, 0])
    call received("batch: expected graphs from 1 to the number of columns of positions")
    call radius_graph(graph, x, cutoff, wrong)
    call received("positions and cell: expected finite numbers, and a cell with a volume")
    call radius_graph(graph, x, cutoff, cell/1000)
    call received("cell: expected one of which the cutoff reaches at most 10^6 images")
    call radius_graph(graph, 1e15_real64*x, cutoff, cell, status=status)
    call expect(status == wrong_argument .and. .not. graph%is_filled(), "status of far points")
  end subroutine

  subroutine received(text)
    character(*), intent(in) :: text
    call expect(last_status == wrong_argument .and. last_message == "radius_graph: "//text, text)
  end subroutine
end module

program neighbours
  use listening, only: failures
  use neighbours_test, only: run
  implicit none
  call run()
  if (failures > 0) error stop 1
end program
