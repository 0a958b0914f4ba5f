/* SPDX-License-Identifier: Apache-2.0 */
/* A client attached to a fake host: the fixture of the client library's tests. */
#ifndef CNRE_TESTS_SUPPORT_ATTACHED_H
#define CNRE_TESTS_SUPPORT_ATTACHED_H

#include "cnre/cnre.h"
#include "tests/support/fake_host.h"

#define SECOND_NS 1000000000LL
#define EXPERTS 16u /* a layer of the fake host's default model */

/* Starts a host and attaches to it; aborts when that fails. */
struct fake_host *attached_start(const struct fake_host_setup *setup, struct cnre **ret_client);
/* Attaches (another process) to a host. 0 or -errno. */
int attached_again(const char *socket, struct cnre **ret_client);
void attached_stop(struct fake_host *host, struct cnre *client);

/* 1 when every part of the view holds the object's bytes. */
int attached_is_right(const struct cnre_expert *expert);

struct cnre_stats attached_stats(struct cnre *client);

/* ---- one acquire on another thread ---- */
struct attached_thread;
struct attached_thread *attached_acquire_begin(struct cnre *client, uint32_t layer, uint32_t expert, int64_t timeout_ns);
/* Joins it: the result of its acquire. */
int attached_acquire_end(struct attached_thread *thread, struct cnre_expert *ret_expert);

#endif
