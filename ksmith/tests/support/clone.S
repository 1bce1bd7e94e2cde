# A guest's program for `-bios`, 64 KiB. At a byte on the serial port it reads a byte of each of 4,096 pages from 16 MiB on. Unless
# the byte is 'r' it then writes to 1,024 pages from 32 MiB on, the same for each byte, and to 1,024 pages from 40 MiB on, to each
# what no other byte writes. Then it says so.
    .code16
    .org 0
start:
    cli
    lgdtl %cs:table
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $8, $(0xffff0000 + flat)

    .code32
flat:
    movw $16, %ax
    movw %ax, %ds
wait:
    movw $0x3fd, %dx
    inb %dx, %al
    testb $1, %al
    jz wait
    movw $0x3f8, %dx
    inb %dx, %al
    movzbl %al, %ebx
    movl $0x1000000, %esi
    movl $4096, %ecx
read:
    movl (%esi), %eax
    addl $4096, %esi
    decl %ecx
    jnz read
    cmpl $'r', %ebx
    je done
    movl $0x2000000, %esi
    movl $1024, %ecx
write:
    movl %ecx, (%esi)
    movl %ecx, 0x800000(%esi)
    movl %ebx, 0x800004(%esi)
    addl $4096, %esi
    decl %ecx
    jnz write
done:
    movw $0x3f8, %dx
    movb $'k', %al
    outb %al, %dx
    jmp wait

    .balign 8
descriptors:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
table:
    .word 23
    .long 0xffff0000 + descriptors

    .code16
    .org 0xfff0
    jmp start
    .org 0x10000
