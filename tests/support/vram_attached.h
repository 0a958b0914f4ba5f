/* SPDX-License-Identifier: Apache-2.0 */
/* A client attached to a fake host with a GPU: the fixture of tests of VRAM in the client library. */
#ifndef CNRE_TESTS_SUPPORT_VRAM_ATTACHED_H
#define CNRE_TESTS_SUPPORT_VRAM_ATTACHED_H

#include "cnre/cnre.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_vram.h"

struct vram_attached {
	struct fake_vram *fake;
	struct fake_host *host;
	struct cnre *client;
};

/* Aborts when it cannot. setup NULL: defaults; flags: of the attach. */
struct vram_attached vram_attached_start(const struct fake_vram_setup *setup, uint32_t flags);
void vram_attached_stop(struct vram_attached *attached);
/* Without the detach. */
void vram_attached_stop_host(struct vram_attached *attached);
int vram_attached_again(const struct vram_attached *attached, uint32_t flags, struct cnre **ret_client);

/* 1 when the view's pointers are those of its object in that arena. */
int vram_attached_lies_in(const struct vram_attached *attached, const struct cnre_expert *view, uint32_t arena);

#endif
