/* SPDX-License-Identifier: Apache-2.0 */
/* Counts as people and programs read them: a table, a JSON object, CSV lines. */
#ifndef CNRE_SIM_REPORT_H
#define CNRE_SIM_REPORT_H

#include "tools/sim/study.h"

#include <jansson.h>
#include <stdio.h>

#define SIM_LABEL_BYTES 64u

struct sim_result {
	char label[SIM_LABEL_BYTES]; /* policy, or policy/start */
	const char *policy;
	struct sim_capacity capacity;
	struct sim_counts counts;
};

void sim_report_table_head(FILE *out);
void sim_report_table_row(FILE *out, const struct sim_result *result);
/* A second table, of VRAM. */
void sim_report_vram_head(FILE *out);
void sim_report_vram_row(FILE *out, const struct sim_result *result);
void sim_report_csv_head(FILE *out);
void sim_report_csv_row(FILE *out, const struct sim_result *result);

/* New references; NULL: out of memory. */
json_t *sim_report_counts(const struct sim_counts *counts);
json_t *sim_report_capacity(const struct sim_capacity *capacity);
json_t *sim_report_traces(const struct sim_study *study);

/* "500 objects", "8 slots per layer", "1.5 GiB"; returns text. */
const char *sim_report_size(const struct sim_capacity *capacity, char text[32]);

/* Writes the object and a newline, and gives the reference back. 0 or -errno; object NULL: -ENOMEM. */
int sim_report_print(FILE *out, json_t *object);

#endif
