/* SPDX-License-Identifier: Apache-2.0 */
/* A client that speaks the protocol without libcnre and misuses everything it gets. Functions report by return value only. */
#ifndef CNRE_TESTS_ATTACKER_H
#define CNRE_TESTS_ATTACKER_H

#include "shm/wire.h"

#define ATTACKER_SEGMENTS_MAX 64

struct attacker {
	int socket;
	int fd[CNRE_FD_COUNT];
	int pool_fd[ATTACKER_SEGMENTS_MAX];
	uint32_t pool_count;
};

int attacker_attach(struct attacker *attacker, const char *socket, const char *model); /* by path; 0 or -errno */

/* Tries every way to a writable mapping, to another size, or to a hole, in each segment that it must not write; how many worked. */
int attacker_find_writable(const struct attacker *attacker);
/* The same for one segment that it must not write at all, and one that it may write and not resize. */
int attacker_ways_to_write(int fd);
int attacker_ways_to_resize(int fd);

/* Writes random words over its channel (and its ledger) and rings its bell, for so long. */
void attacker_write_garbage(const struct attacker *attacker, int seconds, unsigned seed, int ledger_too);

/*
 * Writes well-formed words into its access log as fast as it can, for so long: visits of layer 0, each with so many accesses
 * of object 0.
 */
void attacker_spin_visits(const struct attacker *attacker, int milliseconds, int accesses);

/* Connects, sends one random message, reads what comes, and leaves. */
void attacker_send_random_message(const char *socket, unsigned seed);

/* Connects and sends one control request so many times without reading; the socket, or -errno. */
int attacker_ask(const char *socket, const char *json, int times);
int attacker_ask_on(int connected, const char *json); /* the same once, where it is connected; 0 or -errno */

/* HELLO with this layout version and no identity; the status of the answer. */
int attacker_hello_of_version(const char *socket, const char *model, uint16_t version);

#endif
