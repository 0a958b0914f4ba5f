/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long runs; see progress.h. Part of what the program prints. */
#include "tools/sim/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

#define QUIET_NS (2 * CNRE_NS_PER_S)
#define INTERVAL_NS (CNRE_NS_PER_S / 5)

static int is_due(struct sim_progress *progress)
{
	int64_t now_ns = cnre_clock_now_ns();

	if (progress->begun_ns == 0)
		progress->begun_ns = now_ns;
	if (now_ns - progress->begun_ns < QUIET_NS || now_ns - progress->shown_ns < INTERVAL_NS ||
	    (!progress->wanted && !isatty(STDERR_FILENO)))
		return 0;
	progress->shown_ns = now_ns;
	return 1;
}

void sim_progress_count(struct sim_progress *progress, const char *what, uint64_t done, uint64_t count)
{
	if (is_due(progress))
		fprintf(stderr, "\r%llu of %llu %s ", (unsigned long long)done, (unsigned long long)count, what);
}

void sim_progress_bytes(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes)
{
	if (is_due(context))
		fprintf(stderr, "\rreading %.60s: %.0f %% ", path,
			all_bytes == 0 ? 100.0 : 100.0 * (double)done_bytes / (double)all_bytes);
}

void sim_progress_end(struct sim_progress *progress)
{
	if (progress->shown_ns != 0)
		fputs("\r\033[K", stderr);
	*progress = (struct sim_progress){.wanted = progress->wanted};
}
