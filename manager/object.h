/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one entry of a directory, of which this process is the only writer: a model's in memory (residency.h), or one
 * of a GPU (vram.h). Core thread only.
 */
#ifndef CNRE_MANAGER_OBJECT_H
#define CNRE_MANAGER_OBJECT_H

#include "shm/layout.h"

uint32_t object_word(const struct cnre_entry *entry);
uint64_t object_place(const struct cnre_entry *entry);
uint32_t object_starter(const struct cnre_entry *entry);
/* Stores a state out of LOADING or EVICTING and wakes everybody who sleeps on it, without condition (R6). */
void object_settle(struct cnre_entry *entry, uint32_t generation, enum cnre_load_error error, enum cnre_state state);
/* Order of a load (R2): place, LOADING, submit. ABSENT -> LOADING needs no wake: who sleeps on ABSENT waits for more. */
void object_mark_loading(struct cnre_entry *entry, uint64_t place, uint32_t starter);

#endif
