/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this process is, for handles: an exporter must not open its own (case G1). A pid would not do, which two containers may
 * both have (case G3), nor a pid and its start time, which are those of the namespace that one looks from.
 */
#include "gpu/device.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char token[GPU_TOKEN_BYTES];
static pid_t token_pid; /* whose it is: a forked child is another process */

const unsigned char *gpu_token(void)
{
	(void)pthread_mutex_lock(&token_lock);
	if (token_pid != getpid()) {
		token_pid = getpid();
		(void)getrandom(token, sizeof token, 0); /* so few come whole, and cannot fail */
	}
	(void)pthread_mutex_unlock(&token_lock);
	return token;
}
