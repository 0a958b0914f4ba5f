/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the manager's descriptors go so that they outlive it: systemd's descriptor store, or the keeper, which speaks
 * the same protocol. What was stored comes back to the next incarnation as LISTEN_FDS with LISTEN_FDNAMES. Core thread.
 */
#ifndef CNRE_MANAGER_STORE_H
#define CNRE_MANAGER_STORE_H

#include "manager/keep_wire.h"

#include <stdint.h>

#define STORE_FDS_MAX 8192u               /* R26: planned; attach is refused above */
#define STORE_MESSAGE_BYTES 256
#define STORE_KEEPER_ENVIRONMENT "CNRE_KEEPER_FD"

struct store;

enum store_kind { STORE_NONE, STORE_SYSTEMD, STORE_KEEPER };

/* Finds out who keeps descriptors: CNRE_KEEPER_FD, or NOTIFY_SOCKET with FDSTORE (systemd). 0 or -errno. */
int store_open(struct store **ret_store);
struct store *store_close(struct store *store);
enum store_kind store_kind(const struct store *store);
/* Our end of the socket to the keeper, -1: there is none. It hangs up when the keeper dies. */
int store_keeper_socket(const struct store *store);
/* Another keeper, by its socket, instead of the former one; -1: none any more. Nothing is stored there yet. */
void store_use(struct store *store, int keeper_socket);

/* Stores a duplicate of fd under a name. 0, -ENOSPC (STORE_FDS_MAX), or -errno. Nothing and 0 with STORE_NONE. */
int store_put(struct store *store, const char *name, int fd);
void store_remove(struct store *store, const char *name);

/* Waits, at most a second, until everything sent so far has been taken. 0 or -errno. */
int store_barrier(struct store *store);

/* Says READY=1, STATUS=…, WATCHDOG=1 or STOPPING=1 to whoever started us. */
void store_notify(struct store *store, const char *text);

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
