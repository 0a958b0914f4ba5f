/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a `.coli_usage`. It is taken whole and what is written for it reads as the same history, or it
 * is refused with one line and changes nothing.
 */
#include "base/check.h"
#include "model/usage.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS = 4, EXPERTS = 16, COUNTS = LAYERS * EXPERTS };

static void check_written(const struct usage *usage)
{
	struct usage again;
	char *text, message[64];
	size_t bytes;

	CNRE_CHECK(usage_write_text(usage, &text, &bytes) == 0);
	CNRE_CHECK(usage_open(&again, LAYERS, EXPERTS, usage->engine) == 0);
	CNRE_CHECK(usage_read_text(&again, text, bytes, message, sizeof message) == 0);
	CNRE_CHECK(memcmp(again.count, usage->count, COUNTS * sizeof *usage->count) == 0);
	usage_close(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct usage usage;
	char message[256] = "";
	int r;

	CNRE_CHECK(usage_open(&usage, LAYERS, EXPERTS, size % 2 == 0 ? 0 : usage_engine("olmoe")) == 0);
	r = usage_read(&usage, data, size, message, sizeof message);
	CNRE_CHECK(r <= 0 && (r == 0) == (message[0] == '\0') && strchr(message, '\n') == NULL);
	for (uint32_t i = 0; r < 0 && i < COUNTS; i++)
		CNRE_CHECK(usage.count[i] == 0);
	check_written(&usage);
	usage_close(&usage);
	return 0;
}
