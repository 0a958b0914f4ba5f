/* SPDX-License-Identifier: Apache-2.0 */
/* What iobench measured as an answer, with its verdict in words; and that answer for a person. */
#ifndef CNRE_TOOLS_CTL_IOBENCH_REPORT_H
#define CNRE_TOOLS_CTL_IOBENCH_REPORT_H

#include "tools/ctl/iobench_sweep.h"

/* A new reference, or NULL: no memory. */
json_t *iobench_report(const struct iobench *bench);
void iobench_report_print(FILE *out, struct fields *fields, const json_t *answer);

#endif
