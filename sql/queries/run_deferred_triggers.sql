-- Purpose: run deferred triggers of the target now and not at COMMIT, so that their effect can be checked.
-- Parameters: none. Locks: what the triggers take. Safe to run twice: the second time nothing is deferred.
SET CONSTRAINTS ALL IMMEDIATE
