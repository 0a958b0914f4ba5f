/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny OLMoE checkpoint in a directory: two layers, eight experts, all weights multiples of 1/64 below one in
 * magnitude, so that they are the same numbers in F32, BF16 and F16. Written byte by byte here, so that the reader
 * under test is not compared with itself.
 */
#ifndef CNRE_TESTS_SUPPORT_TINY_OLMOE_H
#define CNRE_TESTS_SUPPORT_TINY_OLMOE_H

#include "cnre/cnre.h"

enum { TINY_LAYERS = 2, TINY_EXPERTS = 8, TINY_TOP_K = 3, TINY_HIDDEN = 24, TINY_INNER = 20, TINY_VOCAB = 40,
       TINY_HEADS = 4, TINY_KV_HEADS = 2 };

/* dense: CNRE_F32, CNRE_BF16 or CNRE_F16; experts: the same, or CNRE_I8 for merged int8 rows. 0 or -1. */
int tiny_olmoe_write(const char *directory, int dense, int experts);
/* Removes what tiny_olmoe_write made, the directory with it. */
void tiny_olmoe_remove(const char *directory);

#endif
