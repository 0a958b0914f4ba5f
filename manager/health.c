/* SPDX-License-Identifier: Apache-2.0 */
/* Who is trusted with reads; see health.h. */
#include "manager/health.h"

#include <errno.h>
#include <string.h>

enum health_kind health_kind_of(int status)
{
	switch (status) {
	case -EIO:
	case -ENODATA: /* what NVMe says of a medium error */
	case -EREMOTEIO:
	case -EILSEQ:
	case -ENXIO:
	case -ENODEV:
	case -ETIMEDOUT:
		return HEALTH_OF_DRIVE;
	case -ENOMEM: /* this machine has no memory, or no descriptors, for a moment */
	case -EMFILE:
	case -ENFILE:
	case -ECANCELED:
		return HEALTH_OF_OTHERS;
	default:
		return HEALTH_OF_FILE; /* cut short, exchanged, removed, or with other bytes */
	}
}

const char *health_words(int status)
{
	switch (status) {
	case -EBADMSG:
		return "it ends too early, or has other bytes";
	case -ESTALE:
		return "another file has its name now";
	case -ENOENT:
		return "it was removed, or its drive is not mounted";
	case -ETIMEDOUT:
		return "no answer in time";
	default:
		return strerror(-status);
	}
}

/* It will not be there at the next try either. */
static int is_gone(int status)
{
	return status == -ENOENT || status == -ESTALE || status == -ENXIO || status == -ENODEV;
}

int health_degrade(struct health *health, int reason, int64_t now_ns)
{
	health->reason = reason;
	if (health->is_degraded)
		return 0;
	if (health->backoff_ns == 0 || now_ns - health->since_ns > HEALTH_GOOD_NS)
		health->backoff_ns = HEALTH_PROBE_FIRST_NS;
	health->is_degraded = 1;
	health->since_ns = now_ns;
	health->probe_ns = now_ns + health->backoff_ns;
	return 1;
}

int health_failed(struct health *health, int status, int64_t now_ns)
{
	if (health->errors_in_row < HEALTH_ERRORS_MAX)
		health->errors_in_row++;
	if (health->errors_in_row < HEALTH_ERRORS_MAX && !is_gone(status))
		return 0;
	return health_degrade(health, status, now_ns);
}

/* One that is degraded is taken back by a probe only: it may have good places besides the bad ones. */
void health_succeeded(struct health *health)
{
	health->errors_in_row = 0;
}

int health_probed(struct health *health, int status, int64_t now_ns, int64_t *ret_out_ns)
{
	if (!health->is_degraded)
		return 0;
	health->backoff_ns = health->backoff_ns * 2 < HEALTH_PROBE_MOST_NS ? health->backoff_ns * 2 : HEALTH_PROBE_MOST_NS;
	if (status < 0) {
		health->reason = status;
		health->probe_ns = now_ns + health->backoff_ns;
		return 0;
	}
	*ret_out_ns = now_ns - health->since_ns;
	health->is_degraded = 0;
	health->errors_in_row = 0;
	health->since_ns = now_ns;
	return 1;
}
