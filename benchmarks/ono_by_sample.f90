program ono_by_sample
  !! Gradient by the basis by the textbook method: for every sample the modified Gram-Schmidt
  !! process and its VJP, column by column. Prints seconds for one batch.
  !!
  !!     gfortran -O3 -march=native benchmarks/ono_by_sample.f90 -o build/ono_by_sample
  use iso_fortran_env, only: int64, real32
  implicit none
  integer, parameter :: n = 1024, k = 64, samples = 128
  real(real32), allocatable :: basis(:, :), u(:, :), g(:, :), gradient(:, :), total(:, :)
  integer(int64) :: start, finish, rate
  integer :: s
  allocate (basis(n, k), u(n, samples), g(k, samples), gradient(n, k), total(n, k))
  call random_number(basis)
  call random_number(u)
  call random_number(g)
  basis = basis - 0.5_real32
  call system_clock(start, rate)
  total = 0
  do s = 1, samples
    call encode_gradient(u(:, s), g(:, s), gradient)
    total = total + gradient
  end do
  call system_clock(finish)
  print "(a, f8.4, a, es12.4)", "seconds ", real(finish - start)/real(rate), "  sum ", sum(total)

contains

  subroutine encode_gradient(x, gy, gb)
    !! gb: the gradient of  gy^T Q^T x  by the basis.
    real(real32), intent(in) :: x(n), gy(k)
    real(real32), intent(out) :: gb(n, k)
    real(real32), allocatable :: q(:, :), r(:, :)
    real(real32) :: column(n), gc(n), gr
    integer :: i, j
    allocate (q(n, k), r(k, k))
    do j = 1, k
      column = basis(:, j)
      do i = 1, j - 1
        r(i, j) = dot_product(q(:, i), column)
        column = column - r(i, j)*q(:, i)
      end do
      r(j, j) = norm2(column)
      q(:, j) = column/r(j, j)
    end do
    do j = 1, k
      gb(:, j) = x*gy(j)
    end do
    do j = k, 1, -1
      gc = (gb(:, j) - q(:, j)*dot_product(q(:, j), gb(:, j)))/r(j, j)
      column = q(:, j)*r(j, j)
      do i = j - 1, 1, -1
        column = column + r(i, j)*q(:, i) ! what it was before this step
        gr = -dot_product(gc, q(:, i))
        gb(:, i) = gb(:, i) - r(i, j)*gc + gr*column
        gc = gc + gr*q(:, i)
      end do
      gb(:, j) = gc
    end do
  end subroutine
end program
