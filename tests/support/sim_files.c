/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files for tests; see sim_files.h. */
#include "tests/support/sim_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, EXPERTS = 32, TOP_K = 4 };

static double draw(uint64_t *state) /* xorshift64* */
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (double)((*state * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0;
}

static void write_row(FILE *to, uint32_t token, uint32_t layer, double skew, uint32_t hot, uint64_t *state)
{
	uint32_t used = 0;

	fprintf(to, "%u %u", token, layer);
	while (__builtin_popcount(used) < TOP_K) {
		uint32_t expert = ((uint32_t)(pow(draw(state), 1 + skew) * EXPERTS) + hot) % EXPERTS;

		if (used >> expert & 1)
			continue;
		used |= 1u << expert;
		fprintf(to, " %u", expert);
	}
	putc('\n', to);
}

void sim_files_write(const struct folder *folder, const char *name, uint32_t tokens, double skew, uint32_t hot,
		     uint32_t drift, uint64_t seed)
{
	uint64_t state = seed * 2 + 1;
	char *text;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	for (uint32_t token = 0; token < tokens; token++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			write_row(to, token, layer, skew, hot + (drift > 0 ? token / drift : 0), &state);
	(void)fclose(to);
	folder_write(folder, name, text, bytes);
	free(text);
}
