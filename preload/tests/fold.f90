! Folds an array, and checks its contents.
program fold
  use, intrinsic :: iso_c_binding
  use ksmith
  implicit none
  integer, parameter :: length = 2**21
  integer(c_int64_t), allocatable, target :: table(:)
  type(ksmith_folded) :: folded
  type(ksmith_savings) :: savings
  integer(c_int) :: code
  integer :: at

  if (ksmith_version() < 2) error stop 'version'
  allocate (table(length))
  table = 0
  table(:length / 4) = [(int(at, c_int64_t), at = 1, length / 4)]
  code = ksmith_fold(c_loc(table), int(length, c_size_t) * 8, ksmith_fold_threads(2), folded)
  if (code /= 0) then
    print '(a)', ksmith_message(code)
    error stop 'ksmith_fold'
  end if
  if (folded%folded_bytes < 11 * 2**20 .or. folded%folded_bytes > 12 * 2**20) error stop 'folded_bytes'
  if (folded%threads < 1) error stop 'threads'
  do at = 1, length
    if (table(at) /= merge(int(at, c_int64_t), 0_c_int64_t, at <= length / 4)) error stop 'contents'
  end do
  if (ksmith_fold(c_loc(table), 1_c_size_t, 0_c_int, folded) == 0) error stop 'no page'
  if (len(ksmith_message(-22_c_int)) < 10) error stop 'message'
  code = ksmith_saves(savings)
  print '(a)', 'ok'
end program
