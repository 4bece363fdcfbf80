#include "tests/support/fake_cuda/fiber.h"

#include <cstdint>
#include <cstring>

namespace kiln::testing {

// What a function call must preserve, on the stack that is left; the rest is the caller's. A jump
// ends it: the processor would predict a return to go to the other stack's caller.
asm(R"(
.text
.globl kiln_fake_switch
.hidden kiln_fake_switch
.type kiln_fake_switch, @function
kiln_fake_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
.globl kiln_fake_resume
.hidden kiln_fake_resume
.type kiln_fake_resume, @function
kiln_fake_resume:
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size kiln_fake_switch, . - kiln_fake_switch
)");

void* fresh_stack(char* memory, long bytes, void (*function)()) {
  // Six registers, the address that is jumped to, and the return address that `function` believes
  // it has: 8 modulo 16 as after a call.
  const auto top = (reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(bytes)) & ~15ul;
  auto* place = reinterpret_cast<void**>(top) - 8;
  std::memset(place, 0, 8 * sizeof(void*));
  place[6] = reinterpret_cast<void*>(function);
  return place;
}

}  // namespace kiln::testing
