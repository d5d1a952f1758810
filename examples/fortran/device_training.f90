program device_training
  !! A network of two graph neural operators learns what another one does, on a device: graph,
  !! parameters and everything in between stay there over the whole training, and the kernels of
  !! pyops take their addresses. Only the losses come back.
  !!
  !!   gfortran -O3 -fopenacc -foffload-options=nvptx-none=-misa=sm_80 -foffload-options=-lm \
  !!     -I.../include/pyops device_training.f90 -L.../lib -lpyops_acc
  !!
  !! The modules are those of -lpyops. Without a device the same program runs on the host.
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32
  use pyops_edges, only: pack_edges, pack_ids
  use pyops_gno_conv, only: gno_conv_forward_r4, gno_conv_backward_r4
  implicit none
  integer(int64), parameter :: nodes = 200, edges = 1600, dim = 2, hidden = 8
  integer(int64), parameter :: inward = 2, width = 6, outward = 1
  integer(int64), parameter :: first = hidden*(dim + 1) + (hidden + 1)*inward*width
  integer(int64), parameter :: second = hidden*(dim + 1) + (hidden + 1)*width*outward
  integer(int32), parameter :: activation = 4 ! tanh
  integer(int32), parameter :: some = 4, all_but_coords = 5 ! bits: features, coords, parameters
  integer, parameter :: steps = 300
  integer(int32) :: src(edges), dst(edges), in_nodes(edges), shared, status
  integer(int64) :: in_offsets(nodes + 1), in_edges(edges), id_offsets(edges + 1), id_entries(edges)
  integer(int64) :: wrong
  real(real32), dimension(first + second) :: params, gradient, moment, square
  real(real32) :: x(inward, nodes), e(dim, edges), unit(2, edges), target(outward, nodes)
  real(real32) :: sums(width, nodes), h(width, nodes), gh(width, nodes)
  real(real32) :: y(outward, nodes), gy(outward, nodes), nothing(1), loss, start
  integer :: step
  save ! gfortran 12 passes addresses of the host for unsaved variables of a host procedure

  call random_init(repeatable=.true., image_distinct=.false.)
  call random_number(unit)
  src = 1 + int(real(nodes)*unit(1, :), int32)
  dst = 1 + int(real(nodes)*unit(2, :), int32)
  call pack_edges(nodes, nodes, edges, edges, 1_int32, dst, src, offsets=in_offsets, &
                  nodes=in_nodes, edges=in_edges, wrong=wrong, status=status)
  if (status == 0) call pack_ids(edges, edges, in_edges, id_offsets, id_entries, shared, status)
  if (status /= 0) error stop "the graph was refused"
  call random_number(x)
  call random_number(e)
  call random_number(params)
  params = 0.6_real32*(params - 0.5_real32)
  moment = 0
  square = 0

  !$acc data copyin(in_offsets, in_nodes, in_edges, id_offsets, id_entries, x, e, moment, square) &
  !$acc & copy(params) create(target, sums, h, gh, y, gy, gradient, nothing)
  call evaluate()
  !$acc parallel loop
  do step = 1, int(nodes)
    target(:, step) = y(:, step)
  end do
  call random_number(params)
  params = 0.6_real32*(params - 0.5_real32)
  !$acc update device(params)
  start = -1
  do step = 1, steps
    call evaluate()
    call compare()
    if (start < 0) start = loss
    if (step == 1 .or. mod(step, 50) == 0) print "(a, i4, a, es10.3)", "step ", step, "  loss", loss
    call go_back()
    call descend(step, 0.01_real32)
  end do
  !$acc end data
  if (.not. loss < 0.1_real32*start) error stop "nothing was learned"

contains

  subroutine evaluate()
    !! y = conv(tanh(conv(x)))
    integer :: i
    !$acc host_data use_device(in_offsets, in_nodes, in_edges, x, e, params, sums)
    call gno_conv_forward_r4( &
      nodes, nodes, edges, edges, dim, hidden, inward, width, activation, 1_int32, 0_int32, &
      in_offsets, in_nodes, in_edges, x, e, params, sums, status)
    !$acc end host_data
    call check()
    !$acc parallel loop
    do i = 1, int(nodes)
      h(:, i) = tanh(sums(:, i))
    end do
    !$acc host_data use_device(in_offsets, in_nodes, in_edges, h, e, params, y)
    call gno_conv_forward_r4( &
      nodes, nodes, edges, edges, dim, hidden, width, outward, activation, 1_int32, 0_int32, &
      in_offsets, in_nodes, in_edges, h, e, params(first + 1), y, status)
    !$acc end host_data
    call check()
  end subroutine

  subroutine compare()
    !! The mean square of what is wrong, and its gradient.
    integer :: i
    loss = 0
    !$acc parallel loop reduction(+:loss) copy(loss)
    do i = 1, int(nodes)
      gy(1, i) = (y(1, i) - target(1, i))/real(nodes)
      loss = loss + 0.5_real32*(y(1, i) - target(1, i))**2/real(nodes)
    end do
  end subroutine

  subroutine go_back()
    integer :: i
    !$acc host_data use_device(in_offsets, in_nodes, in_edges, id_offsets, id_entries, x, h, e) &
    !$acc & use_device(params, gy, gh, gradient, nothing)
    call gno_conv_backward_r4( &
      nodes, nodes, edges, edges, dim, hidden, width, outward, activation, 1_int32, 0_int32, &
      all_but_coords, shared, in_offsets, in_nodes, in_edges, id_offsets, id_entries, h, e, &
      params(first + 1), gy, gh, nothing, gradient(first + 1), status)
    !$acc end host_data
    call check()
    !$acc parallel loop
    do i = 1, int(nodes)
      gh(:, i) = (1 - h(:, i)**2)*gh(:, i)
    end do
    !$acc host_data use_device(in_offsets, in_nodes, in_edges, id_offsets, id_entries, x, e) &
    !$acc & use_device(params, gh, gradient, nothing)
    call gno_conv_backward_r4( &
      nodes, nodes, edges, edges, dim, hidden, inward, width, activation, 1_int32, 0_int32, &
      some, shared, in_offsets, in_nodes, in_edges, id_offsets, id_entries, x, e, params, gh, &
      nothing, nothing, gradient, status)
    !$acc end host_data
    call check()
  end subroutine

  subroutine descend(step, rate)
    !! One step of Adam.
    integer, intent(in) :: step
    real(real32), intent(in) :: rate
    integer :: i
    !$acc parallel loop
    do i = 1, size(params)
      moment(i) = 0.9_real32*moment(i) + 0.1_real32*gradient(i)
      square(i) = 0.999_real32*square(i) + 0.001_real32*gradient(i)**2
      params(i) = params(i) - rate*(moment(i)/(1 - 0.9_real32**step)) &
        /(sqrt(square(i)/(1 - 0.999_real32**step)) + 1e-8_real32)
    end do
  end subroutine

  subroutine check()
    if (status /= 0) error stop "a kernel had no memory"
  end subroutine
end program
