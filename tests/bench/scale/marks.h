// What the guest's program tells the plugin of QEMU, by instructions that do nothing: a seven-byte nop whose displacement is the mark.
// The plugin sees it when the block is translated.
#pragma once
#define MARK_BEGIN 0x0c0b0001 // forget all lines and figures: a measurement begins
#define MARK_START 0x0c0b0002 // this CPU is measured from here
#define MARK_STOP 0x0c0b0003  // this CPU is no longer measured
#define MARK_END 0x0c0b0004   // write down the figures
#define MARK_START_ALL 0x0c0b0005 // all CPUs are measured from here
#define MARK_STOP_ALL 0x0c0b0006
#define MARK(which) __asm__ volatile(".byte 0x0f, 0x1f, 0x80; .long %c0" ::"i"(which) : "memory")
