/* SPDX-License-Identifier: Apache-2.0 */
/* The semaphores of the probes, once in each program and in the library; see probe.h. */
#include "base/probe.h"

#ifndef CNRE_NO_PROBES
/* In a section of its own that is part of the file, also while 0: there the kernel finds the word by its place in the file. */
#define CNRE_PROBE_NAME(name, count) volatile unsigned short cnre_##name##_semaphore __attribute__((section(".probes")));
#include "base/probes.def"
#undef CNRE_PROBE_NAME
#endif
