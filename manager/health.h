/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a drive, or one file on it, is trusted with reads: some errors in a row degrade it, and it is then tried with one
 * small read, more and more seldom, until that succeeds. Bookkeeping only: who asks for the time, tries and logs is
 * drive.c. What is degraded is still used where nothing better is left.
 */
#ifndef CNRE_MANAGER_HEALTH_H
#define CNRE_MANAGER_HEALTH_H

#include <stdint.h>

#define HEALTH_ERRORS_MAX 3u                /* in a row, and it is degraded */
#define HEALTH_PROBE_FIRST_NS 1000000000ll
#define HEALTH_PROBE_MOST_NS 60000000000ll  /* between probes, which double up to this */
#define HEALTH_GOOD_NS 60000000000ll        /* well for so long, and the next trouble begins with short probes again */

struct health {
	uint32_t errors_in_row;
	int is_degraded, reason;            /* reason: the last error, -errno */
	int64_t since_ns;                   /* degraded or well since; 0: well since the start */
	int64_t probe_ns, backoff_ns;       /* when it is tried next, where degraded */
};

enum health_kind { HEALTH_OF_DRIVE, HEALTH_OF_FILE, HEALTH_OF_OTHERS };
/* Whether the drive, or only the file itself, is to blame for an error, or neither: then any other would have failed, too. */
enum health_kind health_kind_of(int status);
/* An error of a read in words: what a C library calls -EBADMSG or -ESTALE says nothing of a file. */
const char *health_words(int status);

/* An error under a read. 1: it is degraded by this one. A file that is gone needs no second error. */
int health_failed(struct health *health, int status, int64_t now_ns);
void health_succeeded(struct health *health);
/* At once, whatever the count: it did not answer at all. 1: it was well. */
int health_degrade(struct health *health, int reason, int64_t now_ns);

/* What the probe brought: 1 taken back, and for how long it was out; 0 not yet. */
int health_probed(struct health *health, int status, int64_t now_ns, int64_t *ret_out_ns);

#endif
