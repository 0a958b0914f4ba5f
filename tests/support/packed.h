/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an expert in the view rows16 is what cnre_attach(3) says, element by element. Reports by return value. */
#ifndef CNRE_TESTS_SUPPORT_PACKED_H
#define CNRE_TESTS_SUPPORT_PACKED_H

#include "cnre/cnre.h"

/* 1: every element of the expert as in the checkpoint has its place, and everything else is 0. */
int packed_is_right(const struct cnre_expert *raw, const struct cnre_expert *prepared);

#endif
