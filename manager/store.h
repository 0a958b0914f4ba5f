/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the manager's descriptors go so that they outlive it: systemd's descriptor store, or the keeper, which speaks
 * the same protocol. What was stored comes back to the next incarnation as LISTEN_FDS with LISTEN_FDNAMES. Core thread.
 */
#ifndef CNRE_MANAGER_STORE_H
#define CNRE_MANAGER_STORE_H

#include "manager/keep_wire.h"

#include <stdint.h>

#define STORE_FDS_MAX 8192u               /* R26: planned; attach is refused above. The unit's FileDescriptorStoreMax */
#define STORE_TIMEOUT_MS 1000             /* that one message may take; then nothing waits until the store answers */
#define STORE_OTHERS_MAX 64u              /* places that no session gets: for fences and segments to come, */
#define STORE_OTHERS_SHARE 8u             /* but of few places no more than this part */
#define STORE_MESSAGE_BYTES 256
#define STORE_KEEPER_ENVIRONMENT "CNRE_KEEPER_FD"

struct keeper_link;
struct store;

enum store_kind { STORE_NONE, STORE_SYSTEMD, STORE_KEEPER };

/* Finds out who keeps descriptors: CNRE_KEEPER_FD, or NOTIFY_SOCKET with FDSTORE (systemd). 0 or -errno. */
int store_open(struct store **ret_store);
struct store *store_close(struct store *store);
enum store_kind store_kind(const struct store *store);
/* Our end of the socket to the keeper, -1: there is none. It hangs up when the keeper dies. */
int store_keeper_socket(const struct store *store);
/* Another keeper instead of the former one; socket -1: none any more. Nothing is stored there yet. Takes over both. */
void store_use(struct store *store, const struct keeper_link *keeper);

/*
 * Stores a duplicate of fd under a name, instead of what is there under it. 0, -ENOSPC (too many, or their names too long
 * for the environment of the next manager: KEEP_NAMES_BYTES_MAX), -ETIMEDOUT, or -errno. Nothing and 0 with STORE_NONE.
 */
int store_put(struct store *store, const char *name, int fd);
/* What cannot be removed now is, once the store answers again. A name that was never put is passed over. */
void store_remove(struct store *store, const char *name);
/* 1: a descriptor of that name was sent, and the store will take it if it lives. */
int store_has(const struct store *store, const char *name);
/* 1: so many more of a session would fit, and beside them what is not a session's. */
int store_has_room(const struct store *store, uint32_t fds);

/*
 * Waits, at most STORE_TIMEOUT_MS, until everything sent so far has been taken. 0 or -errno. After the first -ETIMEDOUT,
 * of this or of another call, the store is slow: nothing waits for it any more, until store_answers_again says so.
 */
int store_barrier(struct store *store);
/* Looks without waiting; 1, once: a slow store has taken everything, and what failed meanwhile should be put again. */
int store_answers_again(struct store *store);

struct store_status {
	enum store_kind kind;
	uint32_t kept, fds_max;           /* descriptors there, and how many there may be */
	uint32_t missing;                 /* that should be there and are not */
	int is_slow;                      /* it does not answer */
	int is_lost;                      /* there was a keeper, and there is none any more */
};
void store_get_status(const struct store *store, struct store_status *ret_status);

/* Says READY=1, STATUS=… or WATCHDOG=1 to whoever started us. */
void store_notify(struct store *store, const char *text);
/* Says STOPPING=1, so that no keeper can miss it: after our end nothing is started. */
void store_stopping(struct store *store);

/*
 * What an earlier incarnation stored: takes the descriptor of a name out of the list that came with LISTEN_FDS, or
 * -ENOENT. store_next walks the rest. What nobody took is closed by store_drop_rest.
 */
int store_take(struct store *store, const char *name);
/* The same without taking it. */
int store_peek(const struct store *store, const char *name);
/*
 * Whether a manager can serve on what it was passed: not on a connection (Accept=yes), which would be its only client, nor
 * on a socket of another kind than clients connect to. 0, or -EPROTOTYPE and what to do.
 */
int store_check_passed(const struct store *store, char message[STORE_MESSAGE_BYTES]);
/* An inherited descriptor that is a listening socket, whatever its name (a socket unit's): taken, or -ENOENT. */
int store_take_listener(struct store *store);
/* 1 and the index'th inherited name that is still there, or 0 behind the last. */
int store_name_at(const struct store *store, uint32_t index, const char **ret_name);
uint32_t store_inherited(const struct store *store);
void store_drop_rest(struct store *store);
/*
 * Removes from the store everything that was inherited, taken or not, but for listening sockets and the names "listen"
 * and "lock"; what nobody took is closed.
 */
void store_drop_inherited(struct store *store);

#endif
