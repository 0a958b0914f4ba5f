/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence: why an expert is where it is. Pure. */
#ifndef CNRE_TOOLS_CTL_WHY_WORDS_H
#define CNRE_TOOLS_CTL_WHY_WORDS_H

#include "tools/ctl/fields.h"

#define WHY_WORDS_BYTES 512

/* From the answer of the verb why; returns `words`. */
const char *why_words(struct fields *fields, const json_t *answer, char words[WHY_WORDS_BYTES]);

#endif
