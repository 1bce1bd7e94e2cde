! The functions of libksmith for Fortran 2008: compile this file with the program, and link with -lksmith.
!
! Each function is that of ksmith.h, which says what it does and what it answers: 0, or a negated errno.
!
! SPDX-License-Identifier: MIT OR Apache-2.0
module ksmith
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_int, c_int64_t, c_ptr, c_size_t
  implicit none
  private

  public :: ksmith_version, ksmith_mark, ksmith_unmark, ksmith_scan, ksmith_saves, ksmith_fold
  public :: ksmith_savings, ksmith_folded, ksmith_message, ksmith_fold_threads

  ! What merging does for this process, in bytes.
  type, bind(c) :: ksmith_savings
    integer(c_int64_t) :: source
    integer(c_int64_t) :: rss_bytes
    integer(c_int64_t) :: merged_bytes
    integer(c_int64_t) :: saved_bytes
    integer(c_int64_t) :: profit_bytes
    integer(c_int64_t) :: zero_bytes
    integer(c_int64_t) :: reserved(2)
  end type

  ! What was folded, and what was left alone. Bytes, but for the last two.
  type, bind(c) :: ksmith_folded
    integer(c_int64_t) :: folded_bytes
    integer(c_int64_t) :: looked_bytes
    integer(c_int64_t) :: shared_bytes
    integer(c_int64_t) :: locked_bytes
    integer(c_int64_t) :: huge_bytes
    integer(c_int64_t) :: other_bytes
    integer(c_int64_t) :: nanoseconds
    integer(c_int64_t) :: threads
  end type

  interface
    integer(c_int) function ksmith_version() bind(c)
      import :: c_int
    end function

    ! start is c_loc of the first element; length is in bytes: size(array) * storage_size(array) / 8.
    integer(c_int) function ksmith_mark(start, length) bind(c)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: start
      integer(c_size_t), value :: length
    end function

    integer(c_int) function ksmith_unmark(start, length) bind(c)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: start
      integer(c_size_t), value :: length
    end function

    integer(c_int) function ksmith_scan(passes, milliseconds) bind(c)
      import :: c_int
      integer(c_int), value :: passes, milliseconds
    end function

    integer(c_int) function ksmith_saves(savings) bind(c)
      import :: c_int, ksmith_savings
      type(ksmith_savings), intent(out) :: savings
    end function

    ! Until it returns nothing writes to the range, and no I/O into it is under way.
    integer(c_int) function ksmith_fold(start, length, flags, folded) bind(c)
      import :: c_int, c_ptr, c_size_t, ksmith_folded
      type(c_ptr), value :: start
      integer(c_size_t), value :: length
      integer(c_int), value :: flags
      type(ksmith_folded), intent(inout) :: folded
    end function

    type(c_ptr) function ksmith_strerror(code) bind(c)
      import :: c_int, c_ptr
      integer(c_int), value :: code
    end function

    integer(c_size_t) function strlen(text) bind(c)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! The flags of ksmith_fold for so many threads, 64 at most.
  pure integer(c_int) function ksmith_fold_threads(threads)
    integer, intent(in) :: threads
    ksmith_fold_threads = iand(int(threads, c_int), 255_c_int)
  end function

  ! A sentence on a code that a function answered.
  function ksmith_message(code) result(message)
    integer(c_int), intent(in) :: code
    character(len=:), allocatable :: message
    character(kind=c_char), pointer :: text(:)
    type(c_ptr) :: found
    integer :: at
    found = ksmith_strerror(code)
    call c_f_pointer(found, text, [strlen(found)])
    allocate (character(len=size(text)) :: message)
    do at = 1, size(text)
      message(at:at) = text(at)
    end do
  end function

end module
