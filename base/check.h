/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions that stay on in every build. CNRE_CHECK is for what only our own code in this process can break
 * (a private struct's magic, a sum that must match). It is never for a value that another process, a disk or the
 * kernel supplies: such a value is input, and bad input is an error code.
 */
#ifndef CNRE_BASE_CHECK_H
#define CNRE_BASE_CHECK_H

#include <stddef.h>

_Noreturn void cnre_check_failed(const char *expression, const char *file, int line);

#define CNRE_CHECK(e) ((e) ? (void)0 : cnre_check_failed(#e, __FILE__, __LINE__))

/* Number of elements of a true array. */
#define CNRE_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#endif
